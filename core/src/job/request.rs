//! What a job is asked for.

use serde_json::Value;

use super::validate::{Fields, check_title};
use super::{BlobName, CameraType, Job, Limits};
use crate::error::{Error, Result};
use crate::pipeline::{ReconstructionMethod, ReconstructionOptions};

/// A request to make a scene of an uploaded video.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRequest {
    /// The uploaded video.
    pub blob_name: BlobName,
    /// Title; absent = the name that the video was uploaded under.
    pub title: Option<String>,
    /// Whether others may see it.
    pub public: bool,
    /// How camera poses are found.
    pub reconstruction_method: ReconstructionMethod,
    /// Largest number of Gaussians.
    pub training_max_num_gaussians: u32,
    /// Number of training steps.
    pub training_num_steps: u32,
    /// Edge of the inner white square of the AprilTags (tagStandard41h12) in millimetres, 5/9 of the printed width, 1 to 1000;
    /// absent = no scale is measured.
    pub apriltag_size_mm: Option<f64>,
    /// Whether to remove the background.
    pub remove_background: bool,
    /// How a viewer moves; absent = drone.
    pub camera_type: Option<CameraType>,
}

impl JobRequest {
    /// A request with the defaults of the interface (docs/rest.md, §4.8).
    pub fn new(blob_name: BlobName) -> Self {
        let defaults = ReconstructionOptions::default();
        Self {
            blob_name,
            title: None,
            public: false,
            reconstruction_method: defaults.reconstruction_method,
            training_max_num_gaussians: defaults.training_max_num_gaussians,
            training_num_steps: defaults.training_num_steps,
            apriltag_size_mm: None,
            remove_background: false,
            camera_type: None,
        }
    }

    /// The same where the operator has narrowed what may be asked for: what nobody named must not be refused (rule 40 of
    /// docs/rest.md).
    pub fn within(blob_name: BlobName, limits: &Limits) -> Self {
        let usual = Self::new(blob_name);
        Self {
            training_max_num_gaussians: usual
                .training_max_num_gaussians
                .min(limits.max_gaussians)
                .max(limits.min_gaussians),
            training_num_steps: usual.training_num_steps.min(limits.max_steps),
            ..usual
        }
    }

    /// Reads the JSON body of a submission. Unknown fields are ignored; `null` counts as absent.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) with everything that is wrong, in one message that names the
    /// fields.
    pub fn from_json(body: &Value, limits: &Limits) -> Result<Self> {
        let mut fields = Fields::of(body)?;
        if fields.value("blob_name").is_none() {
            fields.problem("blob_name is required");
        }
        let blob_name = fields.parsed("blob_name", str::parse);
        let options = Options::read(&mut fields, limits);
        fields.finish()?;
        // It is required, and without it there was a problem.
        let blob_name = blob_name.ok_or_else(|| Error::argument("blob_name is required"))?;
        Ok(options.over(Self::within(blob_name, limits)))
    }

    /// The request that `job` was, with its title and viewer as they are now.
    pub fn of(job: &Job) -> Self {
        Self {
            blob_name: job.details.blob_name,
            title: Some(job.title.clone()),
            public: job.public,
            reconstruction_method: job.reconstruction_method,
            training_max_num_gaussians: job.training_max_num_gaussians,
            training_num_steps: job.training_num_steps,
            apriltag_size_mm: job.details.apriltag_size_mm,
            remove_background: job.remove_background,
            camera_type: Some(job.camera_data.camera_type),
        }
    }

    /// This request with what the JSON body names instead. The video stays. Unknown fields are ignored; `null` counts as absent.
    ///
    /// # Errors
    /// As for [`JobRequest::from_json`].
    pub fn with_json(self, body: &Value, limits: &Limits) -> Result<Self> {
        let mut fields = Fields::of(body)?;
        let options = Options::read(&mut fields, limits);
        fields.finish()?;
        Ok(options.over(self))
    }

    /// The request as reading it from JSON would have made it: within its bounds, its title without the blanks around it.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) with the first field that is out of its range.
    pub fn checked(self, limits: &Limits) -> Result<Self> {
        let title = self.title.as_deref().map(check_title).transpose()?.map(str::to_owned);
        let within = |name: &str, value: u32, low: u32, high: u32| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(Error::argument(format!("{name} is {value}: {low} to {high} is allowed")))
        };
        let (low, high) = (limits.min_gaussians, limits.max_gaussians);
        within("training_max_num_gaussians", self.training_max_num_gaussians, low, high)?;
        within("training_num_steps", self.training_num_steps, 1, limits.max_steps)?;
        self.apriltag_size_mm.map_or(Ok(()), check_tag_size)?;
        Ok(Self { title, ..self })
    }
}

/// What a body names of a request, beside the video.
struct Options {
    title: Option<String>,
    public: Option<bool>,
    reconstruction_method: Option<ReconstructionMethod>,
    training_max_num_gaussians: Option<u32>,
    training_num_steps: Option<u32>,
    apriltag_size_mm: Option<f64>,
    remove_background: Option<bool>,
    camera_type: Option<CameraType>,
}

impl Options {
    /// What is wrong is noted in `fields`.
    fn read(fields: &mut Fields<'_>, limits: &Limits) -> Self {
        let (low, high) = (limits.min_gaussians, limits.max_gaussians);
        let read = Self {
            title: fields.title(),
            public: fields.boolean("public"),
            reconstruction_method: fields.parsed("reconstruction_method", str::parse),
            training_max_num_gaussians: fields.integer("training_max_num_gaussians", low, high),
            training_num_steps: fields.integer("training_num_steps", 1, limits.max_steps),
            apriltag_size_mm: fields.number("apriltag_size_mm"),
            remove_background: fields.boolean("remove_background"),
            camera_type: fields.parsed("camera_type", camera_type),
        };
        if let Some(Err(error)) = read.apriltag_size_mm.map(check_tag_size) {
            fields.problem(error.message().to_owned());
        }
        read
    }

    fn over(self, other: JobRequest) -> JobRequest {
        JobRequest {
            blob_name: other.blob_name,
            title: self.title.or(other.title),
            public: self.public.unwrap_or(other.public),
            reconstruction_method: self.reconstruction_method.unwrap_or(other.reconstruction_method),
            training_max_num_gaussians: self
                .training_max_num_gaussians
                .unwrap_or(other.training_max_num_gaussians),
            training_num_steps: self.training_num_steps.unwrap_or(other.training_num_steps),
            apriltag_size_mm: self.apriltag_size_mm.or(other.apriltag_size_mm),
            remove_background: self.remove_background.unwrap_or(other.remove_background),
            camera_type: self.camera_type.or(other.camera_type),
        }
    }
}

fn check_tag_size(size: f64) -> Result<()> {
    if (1.0..=1000.0).contains(&size) {
        return Ok(());
    }
    Err(Error::argument(format!("apriltag_size_mm is {size}: 1 to 1000 is allowed")))
}

pub(super) fn camera_type(text: &str) -> Result<CameraType> {
    match text {
        "orbital" => Ok(CameraType::Orbital),
        "drone" => Ok(CameraType::Drone),
        _ => Err(Error::argument(format!("camera_type is {text:?}: orbital and drone are known"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::VideoExtension;
    use super::*;

    fn read(body: Value) -> Result<JobRequest> {
        JobRequest::from_json(&body, &Limits::default())
    }

    #[test]
    fn what_is_absent_or_null_is_the_default_of_the_specification() {
        let blob = BlobName::random(VideoExtension::Mp4);
        let request = read(json!({"blob_name": blob, "title": null, "public": null, "other": 3})).unwrap();
        assert_eq!(request, JobRequest::new(blob));
        assert_eq!((request.training_max_num_gaussians, request.training_num_steps), (1_000_000, 25_000));
        assert_eq!(request.reconstruction_method, ReconstructionMethod::Glomap);
    }

    /// Rule 40 of docs/rest.md.
    #[test]
    fn what_nobody_named_keeps_to_what_the_operator_allows() {
        let blob = BlobName::random(VideoExtension::Mp4);
        let limits = Limits { max_gaussians: 500_000, max_steps: 7_000, ..Limits::default() };
        let read = |body| JobRequest::from_json(&body, &limits);
        let request = read(json!({"blob_name": blob})).unwrap();
        assert_eq!((request.training_max_num_gaussians, request.training_num_steps), (500_000, 7_000));
        request.checked(&limits).unwrap();
        // What somebody named is not moved.
        let error = read(json!({"blob_name": blob, "training_max_num_gaussians": 1_000_000})).unwrap_err();
        assert!(error.message().contains("1000 to 500000"), "{error}");
        assert!(read(json!({"blob_name": blob, "training_num_steps": 25_000})).is_err());
        let limits = Limits { min_gaussians: 2_000_000, ..Limits::default() };
        assert_eq!(JobRequest::within(blob, &limits).training_max_num_gaussians, 2_000_000);
    }

    /// Rule 37 of docs/rest.md: JSON has one type of number, and nothing is read from a string.
    #[test]
    fn integers_may_be_written_as_floats_and_nothing_else() {
        let blob = BlobName::random(VideoExtension::Mp4);
        for text in ["1000000", "1000000.0", "1e6"] {
            let body = format!("{{\"blob_name\":\"{blob}\",\"training_max_num_gaussians\":{text}}}");
            assert_eq!(
                read(serde_json::from_str(&body).unwrap()).unwrap().training_max_num_gaussians,
                1_000_000
            );
        }
        for bad in [
            "\"1000000\"",
            "1000000.5",
            "true",
            "[1]",
            "1e300",
            "-1",
            "18446744073709551615",
            "999",
            "10000001",
        ] {
            let body = format!("{{\"blob_name\":\"{blob}\",\"training_max_num_gaussians\":{bad}}}");
            let error = read(serde_json::from_str(&body).unwrap()).unwrap_err();
            assert!(error.message().contains("training_max_num_gaussians"), "{bad}: {error}");
        }
        assert!(read(json!({"blob_name": blob, "public": "true"})).is_err());
        assert!(read(json!({"blob_name": blob, "public": 1})).is_err());
    }

    #[test]
    fn all_problems_are_in_one_message() {
        let error = read(json!({
            "title": "a\nb", "public": "yes", "reconstruction_method": "magic", "training_num_steps": 0,
            "training_max_num_gaussians": 1.5, "apriltag_size_mm": 0, "remove_background": 0, "camera_type": "car",
        }))
        .unwrap_err();
        let names = [
            "blob_name",
            "title",
            "public",
            "reconstruction_method",
            "training_num_steps",
            "training_max_num_gaussians",
            "apriltag_size_mm",
            "remove_background",
            "camera_type",
        ];
        for name in names {
            assert!(error.message().contains(name), "{name}: {error}");
        }
        assert!(read(json!([1])).is_err());
    }

    #[test]
    fn a_blob_name_of_a_bad_shape_reads_like_an_unknown_one() {
        let error = read(json!({"blob_name": "videos/../../etc/passwd"})).unwrap_err();
        assert_eq!(error.message(), "Blob not found. Please verify the upload.");
        assert_eq!(
            read(json!({"blob_name": 7})).unwrap_err().message(),
            "blob_name must be a string, not a number"
        );
    }

    #[test]
    fn methods_titles_and_tags_have_their_rules() {
        let blob = BlobName::random(VideoExtension::Mp4);
        let request = read(json!({
            "blob_name": blob, "reconstruction_method": "COLMAP", "title": "  Garden  ", "apriltag_size_mm": 1000,
            "camera_type": "orbital",
        }))
        .unwrap();
        assert_eq!(request.reconstruction_method, ReconstructionMethod::Colmap);
        assert_eq!(request.title.as_deref(), Some("Garden"));
        assert_eq!(request.camera_type, Some(CameraType::Orbital));
        assert_eq!(request.apriltag_size_mm, Some(1000.0));
        for title in [json!("   "), json!("x".repeat(256)), json!("tab\t"), json!(5)] {
            assert!(read(json!({"blob_name": blob, "title": title})).is_err());
        }
        read(json!({"blob_name": blob, "title": "é".repeat(255)})).unwrap();
        for size in [json!(0), json!(-1), json!(0.99), json!(1000.1), json!("50")] {
            assert!(read(json!({"blob_name": blob, "apriltag_size_mm": size})).is_err(), "{size}");
        }
        // Not as the engine's: a request that this build cannot serve is valid and fails later.
        read(json!({"blob_name": blob, "apriltag_size_mm": 50, "remove_background": true})).unwrap();
    }

    #[test]
    fn another_request_for_the_same_video_keeps_what_is_not_named() {
        let blob = BlobName::random(VideoExtension::Mp4);
        let first = JobRequest {
            title: Some("Garden".into()),
            training_num_steps: 7,
            apriltag_size_mm: Some(50.0),
            ..JobRequest::new(blob)
        };
        let with = |body: Value| first.clone().with_json(&body, &Limits::default());
        assert_eq!(with(json!({})).unwrap(), first);
        assert_eq!(with(json!({"blob_name": 3, "title": null, "apriltag_size_mm": null})).unwrap(), first);
        let other = with(json!({"training_num_steps": 9, "remove_background": true})).unwrap();
        assert_eq!(other, JobRequest { training_num_steps: 9, remove_background: true, ..first.clone() });
        let error = with(json!({"public": 1, "training_num_steps": 0})).unwrap_err();
        assert!(error.message().contains("public") && error.message().contains("training_num_steps"));
    }

    #[test]
    fn a_request_that_was_made_in_code_is_held_to_the_same_limits() {
        let limits = Limits { max_steps: 100, ..Limits::default() };
        let good =
            JobRequest { training_num_steps: 100, ..JobRequest::new(BlobName::random(VideoExtension::Mov)) };
        assert_eq!(good.clone().checked(&limits).unwrap(), good);
        let titled = |title: &str| JobRequest { title: Some(title.into()), ..good.clone() };
        assert_eq!(titled(" Garden  1 ").checked(&limits).unwrap(), titled("Garden  1"));
        titled(&format!(" {} ", "é".repeat(255))).checked(&limits).unwrap();
        for bad in [
            JobRequest { training_num_steps: 101, ..good.clone() },
            JobRequest { training_max_num_gaussians: 1, ..good.clone() },
            JobRequest { apriltag_size_mm: Some(f64::NAN), ..good.clone() },
            titled(" "),
        ] {
            assert!(bad.clone().checked(&limits).is_err(), "{bad:?}");
        }
    }
}
