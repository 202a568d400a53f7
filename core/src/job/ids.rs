//! Names of users, jobs and uploads.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::text::serde_as_text;
use crate::error::{Error, Result};

macro_rules! id {
    ($name:ident, $what:literal) => {
        #[doc = concat!("Identifies ", $what, ": a random UUID, written in lower case with hyphens.")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new random name.
            pub fn random() -> Self {
                Self(Uuid::new_v4())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            /// Reads the hyphenated form, upper or lower case.
            fn from_str(text: &str) -> Result<Self> {
                parse_uuid(text)
                    .map(Self)
                    .ok_or_else(|| Error::argument(format!(concat!("{:?} does not name ", $what), text)))
            }
        }
    };
}

id!(JobId, "a job");
id!(UserId, "a user");
id!(WebhookId, "a webhook");
id!(DeliveryId, "a delivery");

/// The hyphenated form only: the crate also reads braces, URNs and bare digits, which would give one thing many names.
fn parse_uuid(text: &str) -> Option<Uuid> {
    if text.len() != 36 {
        return None;
    }
    Uuid::try_parse(text).ok()
}

/// The files that are accepted: videos, and archives of pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VideoExtension {
    /// MPEG-4.
    Mp4,
    /// QuickTime.
    Mov,
    /// MPEG-4, as Apple names it.
    M4v,
    /// Matroska.
    Mkv,
    /// WebM.
    Webm,
    /// Audio Video Interleave.
    Avi,
    /// Pictures of the scene, packed into one file.
    Zip,
}

impl VideoExtension {
    /// All of them.
    pub const ALL: [VideoExtension; 7] =
        [Self::Mp4, Self::Mov, Self::M4v, Self::Mkv, Self::Webm, Self::Avi, Self::Zip];

    /// Lower case, without a dot.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mp4 => "mp4",
            Self::Mov => "mov",
            Self::M4v => "m4v",
            Self::Mkv => "mkv",
            Self::Webm => "webm",
            Self::Avi => "avi",
            Self::Zip => "zip",
        }
    }
}

impl fmt::Display for VideoExtension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for VideoExtension {
    type Err = Error;

    /// Reads an extension without a dot, whatever its case.
    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|e| e.as_str().eq_ignore_ascii_case(text)).ok_or_else(|| {
            Error::argument("Invalid file format")
                .hint("mp4, mov, m4v, mkv, webm, avi and, for pictures, zip are accepted, without a dot")
        })
    }
}

/// Said of a video that is not there, has a bad name or belongs to somebody else: one text for all three, so that it
/// tells nobody what exists (rule 44 of docs/rest.md).
pub(crate) const BLOB_NOT_FOUND: &str = "Blob not found. Please verify the upload.";

/// Name of an uploaded video: `videos/<uuid>.<extension>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobName {
    /// The random part.
    pub id: Uuid,
    /// The kind of video.
    pub extension: VideoExtension,
}

impl BlobName {
    /// A new random name.
    pub fn random(extension: VideoExtension) -> Self {
        Self { id: Uuid::new_v4(), extension }
    }
}

impl fmt::Display for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "videos/{}.{}", self.id.as_hyphenated(), self.extension)
    }
}

impl FromStr for BlobName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text).ok_or_else(|| Error::argument(BLOB_NOT_FOUND))
    }
}

impl BlobName {
    fn parse(text: &str) -> Option<Self> {
        let (id, extension) = text.strip_prefix("videos/")?.split_once('.')?;
        Some(Self { id: parse_uuid(id)?, extension: extension.parse().ok()? })
    }
}

serde_as_text!(BlobName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_form_and_comes_back_from_it() {
        let id = JobId::random();
        let text = id.to_string();
        assert_eq!(text.len(), 36);
        assert_eq!(text.parse::<JobId>().unwrap(), id);
        assert_eq!(text.to_uppercase().parse::<JobId>().unwrap(), id);
        for bad in ["", "x", &text.replace('-', ""), &format!("{{{text}}}"), &format!("{text} ")] {
            assert!(bad.parse::<JobId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_blob_name_is_parsed_never_trusted() {
        let name = BlobName::random(VideoExtension::Webm);
        assert_eq!(name.to_string().parse::<BlobName>().unwrap(), name);
        let id = name.id;
        for bad in [
            format!("videos/../{id}.mp4"),
            format!("/videos/{id}.mp4"),
            format!("videos/{id}.exe"),
            format!("videos/{id}"),
            format!("videos/{id}.mp4/x"),
            format!("videos//{id}.mp4"),
            format!("{id}.mp4"),
        ] {
            let error = bad.parse::<BlobName>().unwrap_err();
            assert_eq!(error.message(), "Blob not found. Please verify the upload.", "{bad}");
        }
    }

    #[test]
    fn an_extension_has_no_dot_and_no_path() {
        assert_eq!("MP4".parse::<VideoExtension>().unwrap(), VideoExtension::Mp4);
        for bad in [".mp4", "a/mp4", "mp4\\", "gif", "", " mp4"] {
            assert_eq!(bad.parse::<VideoExtension>().unwrap_err().message(), "Invalid file format", "{bad}");
        }
    }
}
