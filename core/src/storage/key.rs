//! Names of blobs: typed values, never text that came with a request.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::job::{ArtifactKind, BlobName, JobId};

/// Names one blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlobKey {
    /// An uploaded video. Each transfer to the same address is another version.
    Video {
        /// The upload.
        name: BlobName,
        /// Tells transfers apart; random.
        version: u64,
    },
    /// A part of a video that is uploaded in blocks.
    Block {
        /// The upload.
        name: BlobName,
        /// Hash of the block's name, see [`BlobKey::block`].
        block: [u8; 16],
    },
    /// A result of a job.
    Artifact {
        /// The job.
        job: JobId,
        /// The attempt that made it.
        attempt: u32,
        /// What it is.
        kind: ArtifactKind,
    },
}

/// The kinds of blobs, each with a folder of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobKind {
    /// [`BlobKey::Video`].
    Video,
    /// [`BlobKey::Block`].
    Block,
    /// [`BlobKey::Artifact`].
    Artifact,
}

impl BlobKind {
    /// The first part of its blobs' names.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Video => "videos",
            Self::Block => "blocks",
            Self::Artifact => "scenes",
        }
    }
}

impl BlobKey {
    /// The key of the block that a client calls `block_id`.
    pub fn block(name: BlobName, block_id: &str) -> Self {
        let hash = Sha256::digest(block_id.as_bytes());
        let mut block = [0; 16];
        block.copy_from_slice(&hash[..16]);
        Self::Block { name, block }
    }

    /// What kind of blob it names.
    pub fn kind(&self) -> BlobKind {
        match self {
            Self::Video { .. } => BlobKind::Video,
            Self::Block { .. } => BlobKind::Block,
            Self::Artifact { .. } => BlobKind::Artifact,
        }
    }

    /// The upload with which the blob came, if it came with one.
    pub fn upload(&self) -> Option<&BlobName> {
        match self {
            Self::Video { name, .. } | Self::Block { name, .. } => Some(name),
            Self::Artifact { .. } => None,
        }
    }

    /// The key that was written as `text`, if it is one.
    pub fn parse(text: &str) -> Option<Self> {
        let (prefix, rest) = text.split_once('/')?;
        let key = match prefix {
            "videos" => {
                let mut parts = rest.splitn(3, '.');
                let (id, version, extension) = (parts.next()?, parts.next()?, parts.next()?);
                let name = format!("videos/{id}.{extension}").parse().ok()?;
                Self::Video { name, version: u64::from_str_radix(version, 16).ok()? }
            }
            "blocks" => {
                let (upload, block) = rest.split_once('/')?;
                let name = format!("videos/{upload}").parse().ok()?;
                Self::Block { name, block: u128::from_str_radix(block, 16).ok()?.to_be_bytes() }
            }
            "scenes" => {
                let (job, file) = rest.split_once('/')?;
                let (attempt, extension) = file.split_once('.')?;
                let kind = ArtifactKind::from_extension(extension)?;
                Self::Artifact { job: job.parse().ok()?, attempt: attempt.parse().ok()?, kind }
            }
            _ => return None,
        };
        // Only the one form that we write: a file that merely resembles one of ours is somebody else's.
        (key.to_string() == text).then_some(key)
    }
}

impl fmt::Display for BlobKey {
    /// The path of the blob below its storage, with `/`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = self.kind().prefix();
        match self {
            Self::Video { name, version } => {
                write!(f, "{prefix}/{}.{version:016x}.{}", name.id.as_hyphenated(), name.extension)
            }
            Self::Block { name, block } => {
                let block = u128::from_be_bytes(*block);
                write!(f, "{prefix}/{}.{}/{block:032x}", name.id.as_hyphenated(), name.extension)
            }
            Self::Artifact { job, attempt, kind } => {
                write!(f, "{prefix}/{job}/{attempt}.{}", kind.extension())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::VideoExtension;

    #[test]
    fn a_key_comes_back_from_its_text_and_nothing_else_does() {
        let name = BlobName::random(VideoExtension::Mov);
        let job = JobId::random();
        let keys = [
            BlobKey::Video { name, version: 7 },
            BlobKey::Video { name, version: u64::MAX },
            BlobKey::block(name, "../../etc/passwd"),
            BlobKey::Artifact { job, attempt: 2, kind: ArtifactKind::Preview },
        ];
        for key in keys {
            assert_eq!(BlobKey::parse(&key.to_string()), Some(key));
            let text = key.to_string();
            for bad in
                [format!("{text}x"), format!("/{text}"), text.replace('/', "//"), text.replace("scenes", "x")]
            {
                assert!(BlobKey::parse(&bad).is_none() || bad == text, "{bad}");
            }
        }
        assert_eq!(BlobKey::parse(&format!("scenes/{job}/+2.ply")), None);
        assert_ne!(BlobKey::block(name, "a"), BlobKey::block(name, "b"));
    }
}
