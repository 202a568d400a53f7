//! What structure from motion has found so far, in a folder, so that a run that was stopped goes on from it: the features of each
//! picture, the matches, the verified pairs.
//!
//! Every file says what it was made from ([`file::Key`]: the program's version, the options, the bytes of the pictures). What is
//! not there, torn, or made from anything else is found anew, and what cannot be written is not kept: the result is the same.

mod file;
mod values;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use image::GrayImage;
use rayon::prelude::*;
use serde::Serialize;
use sha2::{Digest, Sha256};

use self::file::{Key, Writer, read, write};
pub(crate) use self::values::FeaturesAndColors;
use self::values::{
    read_features, read_matches, read_verified, write_features, write_matches, write_verified,
};
use super::features::{FeatureOptions, Features};
use super::matching::PairMatches;
use super::two_view::TwoViewGeometry;
use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::hashing::{hash_file, hash_parts};
use crate::hex::hex;
use crate::video::Frames;

/// How the names of the files end; no others are touched.
const EXTENSION: &str = ".kept";

/// Where results are kept.
pub(crate) struct Kept(Option<Place>);

struct Place {
    folder: PathBuf,
    /// By image: the key of its features.
    pictures: Vec<Key>,
    /// Whether a file could not be written: then no other is.
    is_given_up: AtomicBool,
}

impl Kept {
    /// Nothing is kept.
    pub(crate) fn nowhere() -> Self {
        Self(None)
    }

    /// In `folder`, which is made if it is not there. What is there of other pictures is removed.
    ///
    /// # Errors
    /// If the folder cannot be made, or a picture not be read; `Cancelled`.
    pub(crate) fn open(
        folder: &Path,
        frames: &Frames,
        options: &FeatureOptions,
        control: &Control,
    ) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
        let picture = |image: usize| {
            control.check()?;
            let mut hash = Sha256::new();
            hash_file(&frames.path(image), &mut hash)?;
            let frame = &frames.frames[image];
            key("features", &(options, frame.width, frame.height), [&hash.finalize()[..]])
        };
        let pictures = (0..frames.frames.len()).into_par_iter().map(picture).collect::<Result<_>>()?;
        let place = Place { folder: folder.to_owned(), pictures, is_given_up: AtomicBool::new(false) };
        let pictures = place.pictures.iter().map(features_name);
        let pairs = [false, true]
            .into_iter()
            .flat_map(|of_object| [MATCHES, VERIFIED].map(|what| pairs_name(what, of_object)));
        place.remove_all_but(&pictures.chain(pairs).collect());
        Ok(Self(Some(place)))
    }

    /// The features of an image, if they were kept.
    pub(crate) fn features(&self, image: usize) -> Option<FeaturesAndColors> {
        let place = self.0.as_ref()?;
        let key = &place.pictures[image];
        read(&place.folder.join(features_name(key)), key, read_features)
    }

    pub(crate) fn keep_features(&self, image: usize, found: &FeaturesAndColors) {
        if let Some(place) = &self.0 {
            let key = &place.pictures[image];
            place.keep(&features_name(key), key, |writer| write_features(writer, found));
        }
    }

    /// What is kept of the pairs of `frames`, from the features in `masks` if there are any. `options` are all that the matches
    /// depend on beside the features.
    ///
    /// # Errors
    /// `Internal` if the options cannot be written as JSON.
    pub(crate) fn pairs(
        &self,
        frames: &Frames,
        masks: Option<&[GrayImage]>,
        options: &impl Serialize,
    ) -> Result<KeptPairs<'_>> {
        let Some(place) = &self.0 else { return Ok(KeptPairs(None)) };
        let masks_key = masks.map(|masks| {
            let sizes: Vec<[u8; 8]> = masks.iter().map(|m| bytemuck::cast([m.width(), m.height()])).collect();
            hash_parts(sizes.iter().zip(masks).flat_map(|(size, mask)| [&size[..], mask.as_raw()]))
        });
        let pictures = place.pictures.iter().chain(&masks_key).map(|key| &key[..]);
        let key = key(MATCHES, &(options, &frames.frames, frames.is_sequential()), pictures)?;
        Ok(KeptPairs(Some(Pairs { place, key, of_object: masks.is_some() })))
    }
}

/// What is kept of the pairs of a capture.
pub(crate) struct KeptPairs<'a>(Option<Pairs<'a>>);

struct Pairs<'a> {
    place: &'a Place,
    /// That of the matches.
    key: Key,
    of_object: bool,
}

impl KeptPairs<'_> {
    /// The matches of `features`, if they were kept.
    pub(crate) fn matches(&self, features: &[Features]) -> Option<Vec<PairMatches>> {
        let pairs = self.0.as_ref()?;
        read(&pairs.path(MATCHES), &pairs.key, |reader| read_matches(reader, features))
    }

    pub(crate) fn keep_matches(&self, matches: &[PairMatches]) {
        if let Some(pairs) = &self.0 {
            let name = pairs_name(MATCHES, pairs.of_object);
            pairs.place.keep(&name, &pairs.key, |writer| write_matches(writer, matches));
        }
    }

    /// The verified pairs of `matches`, if they were kept. `options` are all that they depend on beside the matches.
    ///
    /// # Errors
    /// `Internal` if the options cannot be written as JSON.
    pub(crate) fn verified(
        &self,
        features: &[Features],
        matches: &[PairMatches],
        options: &impl Serialize,
    ) -> Result<Option<Vec<TwoViewGeometry>>> {
        let Some(pairs) = &self.0 else { return Ok(None) };
        let key = key(VERIFIED, options, [&pairs.key[..]])?;
        Ok(read(&pairs.path(VERIFIED), &key, |reader| read_verified(reader, features, matches)))
    }

    /// Keeps them for [`Self::verified`] with the same options.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn keep_verified(&self, verified: &[TwoViewGeometry], options: &impl Serialize) -> Result<()> {
        let Some(pairs) = &self.0 else { return Ok(()) };
        let key = key(VERIFIED, options, [&pairs.key[..]])?;
        let name = pairs_name(VERIFIED, pairs.of_object);
        pairs.place.keep(&name, &key, |writer| write_verified(writer, verified));
        Ok(())
    }
}

impl Pairs<'_> {
    fn path(&self, what: &str) -> PathBuf {
        self.place.folder.join(pairs_name(what, self.of_object))
    }
}

impl Place {
    /// Writes a file. If that fails, no more is kept: it costs only time if the run is stopped. A full disk is left to the results.
    fn keep(&self, name: &str, key: &Key, arrays: impl FnOnce(&mut Writer<'_>) -> std::io::Result<()>) {
        if self.is_given_up.load(Ordering::Relaxed) {
            return;
        }
        let Err(error) = write(&self.folder, name, key, arrays) else { return };
        if !self.is_given_up.swap(true, Ordering::Relaxed) {
            log::warn!(
                "what is found is not kept any more, and would be found anew if this is stopped: {error}"
            );
        }
        if error.kind() == ErrorKind::DiskFull {
            self.remove_all_but(&BTreeSet::new());
        }
    }

    /// Removes all kept files but those `wanted`, and what a killed process was writing.
    fn remove_all_but(&self, wanted: &BTreeSet<String>) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        for name in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            if name.ends_with(EXTENSION) && !wanted.contains(&name) {
                // What stays costs space until the folder is removed.
                let _ = std::fs::remove_file(self.folder.join(name));
            }
        }
    }
}

const MATCHES: &str = "matches";
const VERIFIED: &str = "verified";

fn features_name(key: &Key) -> String {
    format!("features-{}{EXTENSION}", hex(key))
}

/// One file for the whole and one for the object: where the object alone gives no model, a run needs both.
fn pairs_name(what: &str, of_object: bool) -> String {
    format!("{what}{}{EXTENSION}", if of_object { "-of-object" } else { "" })
}

/// The key of what this version finds from `inputs` with these parameters.
fn key<'a>(
    what: &str,
    parameters: &impl Serialize,
    inputs: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Key> {
    let parameters = serde_json::to_vec(parameters)
        .map_err(|e| Error::new(ErrorKind::Internal, "parameters cannot be written as JSON").caused_by(e))?;
    let inputs = hash_parts(inputs);
    Ok(hash_parts([crate::VERSION.as_bytes(), what.as_bytes(), &parameters, &inputs]))
}

#[cfg(test)]
mod tests;
