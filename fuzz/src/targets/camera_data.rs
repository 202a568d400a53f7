//! Where a viewer starts: a file with it, and the body of a request that changes a job.

use libreconstruct::ErrorKind;
use libreconstruct::job::{CameraData, JobUpdate};
use serde_json::Value;

use super::super::server;

pub fn run(bytes: &[u8]) {
    if let Ok(data) = serde_json::from_slice::<CameraData>(bytes) {
        match data.pose() {
            Ok(pose) => {
                data.check().expect("a camera that stands somewhere is good");
                let rotation = pose.rotation.coords.norm();
                assert!(
                    (rotation - 1.0).abs() < 1e-6 && pose.translation.iter().all(|v| v.is_finite()),
                    "{pose:?}"
                );
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}"),
        }
        let text = serde_json::to_vec(&data).expect("what was read can be written");
        serde_json::from_slice::<CameraData>(&text).expect("what was written can be read");
    }
    let Some(object) = server::json_object(bytes) else { return };
    match JobUpdate::from_json(&Value::Object(object)) {
        Ok(update) => {
            let checked = update.clone().checked().expect("what was read is good");
            assert_eq!(checked, update, "what was read is checked");
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}"),
    }
}
