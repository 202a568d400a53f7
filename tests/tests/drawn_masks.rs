//! The masks of real captures that were drawn by hand are what their README says.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by it")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use libreconstruct::masks::{find_mask, read_mask};
use libreconstruct_tests::drawn_masks::{DRAWN_CAPTURES, MASKS_OF_A_CAPTURE};
use libreconstruct_tests::masks::UNDECIDED;
use libreconstruct_tests::prerequisites;

/// Bytes that a mask's file may have.
const LARGEST_FILE: u64 = 200_000;

/// Part of the object that may be undecided.
const MOST_UNDECIDED: f64 = 0.03;

#[test]
fn every_capture_has_its_masks_and_every_folder_is_a_captures() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("drawn_masks");
    let folders: BTreeSet<String> = fs::read_dir(&root)
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    let named: BTreeSet<String> = DRAWN_CAPTURES.iter().map(|c| c.name.to_owned()).collect();
    assert_eq!(folders, named);
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    for capture in DRAWN_CAPTURES {
        assert!(readme.contains(&format!("`{}`", capture.name)), "{} is not in the README", capture.name);
    }
}

#[test]
fn drawn_masks_are_object_background_or_undecided() {
    for capture in DRAWN_CAPTURES {
        let files: Vec<_> = fs::read_dir(capture.masks()).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(files.len(), MASKS_OF_A_CAPTURE, "{}", capture.name);
        for file in files {
            let name = file.display();
            assert_eq!(file.extension().unwrap(), "png", "{name}");
            assert!(fs::metadata(&file).unwrap().len() <= LARGEST_FILE, "{name}");
            let mask = read_mask(&file).unwrap();
            assert_eq!(mask.dimensions(), capture.size, "{name}");
            let count = |value: u8| mask.as_raw().iter().filter(|v| **v == value).count();
            let (object, background, undecided) = (count(255), count(0), count(UNDECIDED));
            assert_eq!(object + background + undecided, mask.as_raw().len(), "{name} has other values");
            let part = object as f64 / mask.as_raw().len() as f64;
            assert!((0.01..0.7).contains(&part), "{name}: {part}");
            assert!((undecided as f64) < MOST_UNDECIDED * object as f64, "{name}: {undecided} of {object}");
        }
    }
}

/// The rule by which pictures were chosen, where the pictures are files.
#[test]
fn drawn_pictures_are_spread_evenly_over_the_capture() {
    for capture in DRAWN_CAPTURES {
        let Some(folder) = prerequisites::capture(capture.name) else { return };
        let pictures = folder.join(capture.pictures);
        if !pictures.is_dir() {
            continue;
        }
        let mut names: Vec<String> = fs::read_dir(&pictures)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        for k in 0..MASKS_OF_A_CAPTURE {
            let name = &names[k * names.len() / MASKS_OF_A_CAPTURE];
            assert!(find_mask(&capture.masks(), name).is_some(), "{} has no mask of {name}", capture.name);
        }
    }
}
