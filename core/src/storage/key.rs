//! Names of blobs: typed values, never text that came with a request.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::job::{ArtifactKind, BlobName, JobId};
use crate::stage::Stage;

/// Names one blob. Not whose it is: that says its row alone, by which every access is decided.
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
    /// A video that a client sends to an address of the storage itself. It becomes a [`BlobKey::Video`] when a job is submitted:
    /// until the address expires, the client can replace this one.
    Incoming {
        /// The upload.
        name: BlobName,
    },
    /// With what another machine goes on with an unfinished job.
    Checkpoint {
        /// The job.
        job: JobId,
        /// How far it was.
        reached: Reached,
        /// Tells apart what two workers stored of the same; random.
        version: u64,
    },
}

/// How far a job was when a [`BlobKey::Checkpoint`] was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reached {
    /// The stage was finished: what it left.
    Finished(Stage),
    /// In training: the state after this many steps.
    Training {
        /// Steps that were done.
        step: u32,
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
    /// [`BlobKey::Incoming`].
    Incoming,
    /// [`BlobKey::Checkpoint`].
    Checkpoint,
}

impl BlobKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Video, Self::Block, Self::Artifact, Self::Incoming, Self::Checkpoint];

    /// The first part of its blobs' names.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Video => "videos",
            Self::Block => "blocks",
            Self::Artifact => "scenes",
            Self::Incoming => "incoming",
            Self::Checkpoint => "checkpoints",
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
            Self::Incoming { .. } => BlobKind::Incoming,
            Self::Checkpoint { .. } => BlobKind::Checkpoint,
        }
    }

    /// The upload with which the blob came, if it came with one.
    pub fn upload(&self) -> Option<&BlobName> {
        match self {
            Self::Video { name, .. } | Self::Block { name, .. } | Self::Incoming { name } => Some(name),
            Self::Artifact { .. } | Self::Checkpoint { .. } => None,
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
            "incoming" => Self::Incoming { name: format!("videos/{rest}").parse().ok()? },
            "checkpoints" => {
                let (job, file) = rest.split_once('/')?;
                let (reached, version) = file.split_once('.')?;
                let (job, version) = (job.parse().ok()?, u64::from_str_radix(version, 16).ok()?);
                Self::Checkpoint { job, reached: Reached::parse(reached)?, version }
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
            Self::Incoming { name } => write!(f, "{prefix}/{}.{}", name.id.as_hyphenated(), name.extension),
            Self::Checkpoint { job, reached, version } => {
                write!(f, "{prefix}/{job}/{reached}.{version:016x}")
            }
        }
    }
}

impl Reached {
    fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("training-") {
            Some(step) => Some(Self::Training { step: step.parse().ok()? }),
            None => Stage::ALL.into_iter().find(|stage| stage.name() == text).map(Self::Finished),
        }
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished(stage) => write!(f, "{stage}"),
            Self::Training { step } => write!(f, "training-{step}"),
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
            BlobKey::Incoming { name },
            BlobKey::Checkpoint { job, reached: Reached::Finished(Stage::Sfm), version: 3 },
            BlobKey::Checkpoint { job, reached: Reached::Training { step: 15_000 }, version: u64::MAX },
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
        for bad in [
            format!("scenes/{job}/+2.ply"),
            format!("checkpoints/{job}/training-015.{:016x}", 1),
            format!("checkpoints/{job}/sleep.{:016x}", 1),
            format!("incoming/{}", name.id.as_hyphenated()),
        ] {
            assert_eq!(BlobKey::parse(&bad), None);
        }
        assert_ne!(BlobKey::block(name, "a"), BlobKey::block(name, "b"));
    }
}
