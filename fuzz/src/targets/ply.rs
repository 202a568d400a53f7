//! `.ply` files. What is read has only finite values, and reads as the same again when it is written.

use libreconstruct::ErrorKind;
use libreconstruct::splats::Splats;

use super::super::scratch;
use super::check_scene;

pub fn run(bytes: &[u8]) {
    match Splats::read_ply(&scratch::file("input.ply", bytes)) {
        Ok(splats) => {
            check_scene(&splats);
            let again = scratch::folder().join("again.ply");
            splats.write_ply(&again).expect("what was read can be written");
            assert!(Splats::read_ply(&again).expect("what was written can be read") == splats);
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidFile, "{error}"),
    }
}
