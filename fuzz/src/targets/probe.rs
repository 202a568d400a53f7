//! What ffprobe writes about a video. What is accepted can be worked with.

use libreconstruct::ErrorKind;
use libreconstruct::fuzzing::read_probe;

pub fn run(bytes: &[u8]) {
    match read_probe(bytes) {
        Ok(info) => {
            assert!((1..=8192).contains(&info.width) && (1..=8192).contains(&info.height), "{info:?}");
            assert!([0, 90, 180, 270].contains(&info.rotation), "{info:?}");
            assert!((0.0..=1800.0).contains(&info.duration), "{info:?}");
            assert!(info.frame_rate.is_finite() && info.frame_rate >= 0.0, "{info:?}");
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidMedia, "{error}"),
    }
}
