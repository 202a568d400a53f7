//! EXIF data of pictures. A focal length that is believed is one that a lens can have.

use libreconstruct::fuzzing::read_exif;

const SIZE: (u32, u32) = (4032, 3024);

pub fn run(bytes: &[u8]) {
    let (_, focal) = read_exif(bytes, SIZE.0, SIZE.1);
    if let Some(focal) = focal {
        let long = f64::from(SIZE.0);
        assert!((0.2 * long..=20.0 * long).contains(&focal), "{focal}");
    }
}
