//! What a user changes about a job.

use serde_json::Value;

use super::request::camera_type;
use super::validate::{Fields, check_title};
use super::{CameraData, CameraType, Xyz};
use crate::error::{Error, Result};

/// Changes to a job; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobUpdate {
    /// New title.
    pub title: Option<String>,
    /// Whether others may see it.
    pub public: Option<bool>,
    /// Where a viewer starts.
    pub camera_data: Option<CameraUpdate>,
}

/// A change of `camera_data`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CameraUpdate {
    /// Back to what the reconstruction found, or the default before it did.
    Reset,
    /// Replaces position, lookAt and up.
    Set {
        /// Where the camera is.
        position: Xyz,
        /// The point it looks at.
        look_at: Xyz,
        /// The direction that is up.
        up: Xyz,
        /// How it moves; absent = as before.
        camera_type: Option<CameraType>,
    },
}

impl JobUpdate {
    /// Reads the JSON body of an update. Unknown and read-only fields are ignored; `null` counts as absent, except that
    /// `"camera_data": null` resets the camera.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) with everything that is wrong, in one message.
    pub fn from_json(body: &Value) -> Result<Self> {
        let mut fields = Fields::of(body)?;
        let title = fields.title();
        let public = fields.boolean("public");
        let camera_data = match fields.value("camera_data") {
            None if fields.names("camera_data") => Some(CameraUpdate::Reset),
            None => None,
            Some(value) => match camera(value) {
                Ok(camera) => Some(camera),
                Err(error) => {
                    fields.problem(error.message().to_owned());
                    None
                }
            },
        };
        fields.finish()?;
        Ok(Self { title, public, camera_data })
    }

    /// The update as reading it from JSON would have made it: its camera looks somewhere, its title is without the blanks around
    /// it.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) with the first field that cannot be.
    pub fn checked(self) -> Result<Self> {
        let title = self.title.as_deref().map(check_title).transpose()?.map(str::to_owned);
        if let Some(CameraUpdate::Set { position, look_at, up, .. }) = self.camera_data {
            CameraData { position, look_at, up, camera_type: CameraType::default() }.check()?;
        }
        Ok(Self { title, ..self })
    }
}

fn camera(value: &Value) -> Result<CameraUpdate> {
    let Value::Object(object) = value else {
        return Err(Error::argument("camera_data must be an object or null"));
    };
    const VECTORS: [&str; 3] = ["position", "lookAt", "up"];
    if let Some(name) = object.keys().find(|k| !VECTORS.contains(&k.as_str()) && *k != "cameraType") {
        return Err(Error::argument(format!(
            "camera_data has an unknown key {name:?}: position, lookAt, up and cameraType are known"
        )));
    }
    let vector = |name: &str| match object.get(name) {
        None => Err(Error::argument(format!("camera_data.{name} is required"))),
        Some(value) => xyz(value).ok_or_else(|| {
            Error::argument(format!("camera_data.{name} must be an object of the numbers x, y and z"))
        }),
    };
    let [position, look_at, up] = VECTORS;
    let (position, look_at, up) = (vector(position)?, vector(look_at)?, vector(up)?);
    let camera_type = match object.get("cameraType") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(camera_type(text).map_err(|_| {
            Error::argument(format!("camera_data.cameraType is {text:?}: orbital and drone are known"))
        })?),
        Some(_) => return Err(Error::argument("camera_data.cameraType must be a string")),
    };
    CameraData { position, look_at, up, camera_type: camera_type.unwrap_or_default() }.check()?;
    Ok(CameraUpdate::Set { position, look_at, up, camera_type })
}

fn xyz(value: &Value) -> Option<Xyz> {
    let object = value.as_object().filter(|o| o.len() == 3)?;
    let number = |name: &str| object.get(name)?.as_f64();
    Some(Xyz { x: number("x")?, y: number("y")?, z: number("z")? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn camera_json() -> Value {
        json!({"position": {"x": 1, "y": 0, "z": 2.5}, "lookAt": {"x": 0, "y": 0, "z": 0}, "up": {"x": 0, "y": -1, "z": 0}})
    }

    /// Rule 61 of docs/rest.md.
    #[test]
    fn what_is_unknown_or_read_only_changes_nothing() {
        assert_eq!(JobUpdate::from_json(&json!({})).unwrap(), JobUpdate::default());
        let ignored = json!({"status": "Finished", "job_id": 3, "title": null, "x": []});
        assert_eq!(JobUpdate::from_json(&ignored).unwrap(), JobUpdate::default());
        assert!(JobUpdate::from_json(&json!("x")).is_err());
        assert!(JobUpdate::from_json(&json!({"title": ""})).is_err());
        assert!(JobUpdate::from_json(&json!({"public": "no"})).is_err());
    }

    /// Rule 62.
    #[test]
    fn a_camera_is_whole_or_reset() {
        let update = JobUpdate::from_json(&json!({"camera_data": camera_json()})).unwrap();
        assert!(
            matches!(update.camera_data, Some(CameraUpdate::Set { camera_type: None, position, .. }) if position.z == 2.5)
        );
        let update = JobUpdate::from_json(&json!({"camera_data": null})).unwrap();
        assert_eq!(update.camera_data, Some(CameraUpdate::Reset));

        let broken: [fn(&mut Value); 9] = [
            |c| c["extra"] = json!(1),
            |c| c["up"] = json!({"x": 0, "y": 0, "z": 0}),
            |c| c["position"] = c["lookAt"].clone(),
            |c| c["position"]["x"] = json!("1"),
            |c| c["position"]["w"] = json!(1),
            |c| c["cameraType"] = json!("car"),
            |c| c["cameraType"] = json!(1),
            |c| drop(c.as_object_mut().unwrap().remove("up")),
            |c| *c = json!([]),
        ];
        for (k, make) in broken.into_iter().enumerate() {
            let mut camera = camera_json();
            make(&mut camera);
            let error = JobUpdate::from_json(&json!({"camera_data": camera})).unwrap_err();
            assert!(error.message().contains("camera_data"), "{k}: {error}");
        }
    }
}
