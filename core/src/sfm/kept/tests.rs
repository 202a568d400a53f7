use super::*;
use crate::random::Random;
use crate::sfm::features::Keypoint;
use crate::sfm::two_view::synthetic::{Pair, PairKind};
use crate::sfm::two_view::{TwoViewOptions, verify_pairs};
use crate::video::Frame;

/// Files that stand for pictures: nothing here looks into them.
fn frames(folder: &Path, contents: &[&str]) -> Frames {
    let frame = |(index, content): (usize, &&str)| {
        let name = format!("{index}.png");
        std::fs::write(folder.join(&name), content).unwrap();
        Frame::new(name, index as u64, 800, 600)
    };
    Frames::of_images(folder, contents.iter().enumerate().map(frame).collect())
}

fn open(folder: &Path, frames: &Frames, options: &FeatureOptions) -> Kept {
    Kept::open(folder, frames, options, &Control::new()).unwrap()
}

fn features(count: usize, seed: u64) -> FeaturesAndColors {
    let mut random = Random::new(seed);
    let mut number = || random.normal() as f32;
    let keypoints = (0..count)
        .map(|_| Keypoint { x: number(), y: number(), scale: number(), orientation: -0.0 })
        .collect();
    let descriptors = (0..count).map(|_| std::array::from_fn(|_| random.below(256) as u8)).collect();
    let colors = (0..count).map(|_| std::array::from_fn(|_| random.below(256) as u8)).collect();
    (Features { keypoints, descriptors }, colors)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn features_are_those_of_a_picture_and_of_options() {
    let place = tempfile::tempdir().unwrap();
    let (pictures, folder) = (place.path(), place.path().join("kept"));
    let captured = frames(pictures, &["one", "two", "three"]);
    let options = FeatureOptions::default();
    let kept = open(&folder, &captured, &options);
    assert_eq!(kept.features(0), None);
    let found: Vec<_> = [200, 0, 1].into_iter().zip(0..).map(|(count, seed)| features(count, seed)).collect();
    for (image, found) in found.iter().enumerate() {
        kept.keep_features(image, found);
    }
    std::fs::write(folder.join("writing-matches.kept"), "what a killed process left").unwrap();
    std::fs::write(folder.join("notes.txt"), "somebody's").unwrap();

    let again = open(&folder, &captured, &options);
    let all: Vec<_> = (0..3).map(|image| again.features(image)).collect();
    assert_eq!(all, found.iter().cloned().map(Some).collect::<Vec<_>>());
    assert_eq!(names(&folder).len(), 4, "{:?}", names(&folder));

    // The order of pictures and their names say nothing about them.
    let moved = frames(pictures, &["three", "one", "other"]);
    let kept = open(&folder, &moved, &options);
    assert_eq!(kept.features(0), Some(found[2].clone()));
    assert_eq!(kept.features(1), Some(found[0].clone()));
    assert_eq!(kept.features(2), None);
    assert_eq!(
        names(&folder).len(),
        3,
        "those of the picture that is gone are gone, what is not ours is there"
    );

    let fewer = FeatureOptions { max_num_features: 100, ..FeatureOptions::default() };
    assert_eq!(open(&folder, &moved, &fewer).features(0), None);
    assert_eq!(names(&folder), ["notes.txt"]);
    assert_eq!(Kept::nowhere().features(7), None);
}

#[test]
fn features_whose_parts_do_not_go_together_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let captured = frames(place.path(), &["one"]);
    let kept = open(place.path(), &captured, &FeatureOptions::default());
    let whole = features(9, 1);
    for cut in 0..3 {
        let mut odd = whole.clone();
        match cut {
            0 => odd.0.keypoints.truncate(8),
            1 => odd.0.descriptors.truncate(8),
            _ => odd.1.truncate(8),
        }
        kept.keep_features(0, &odd);
        assert_eq!(kept.features(0), None);
    }
    kept.keep_features(0, &whole);
    assert_eq!(kept.features(0), Some(whole));
}

#[test]
fn pairs_are_those_of_all_pictures_and_options() {
    let place = tempfile::tempdir().unwrap();
    let (pictures, folder) = (place.path(), place.path().join("kept"));
    let captured = frames(pictures, &["one", "two"]);
    let options = FeatureOptions::default();
    let pair = Pair::new(PairKind::General, 3, 200, 0.3, 0.5);
    let noise = PairMatches { first: 0, second: 1, matches: vec![[3, 4], [5, 5]] };
    let none = PairMatches { first: 0, second: 1, matches: Vec::new() };
    let matches = [pair.matches.clone(), noise, none];
    let (views, two_view) = (pair.views(), TwoViewOptions::default());
    let verified = verify_pairs(&views, &matches, &two_view, &Control::new()).unwrap();
    assert!(verified[0].fundamental.is_some() && verified[1].fundamental.is_none());
    let seen = views.features;
    {
        let kept = open(&folder, &captured, &options);
        let pairs = kept.pairs(&captured, None, &1).unwrap();
        assert_eq!((pairs.matches(seen), pairs.verified(seen, &matches, &2).unwrap()), (None, None));
        pairs.keep_matches(&matches);
        pairs.keep_verified(&verified, &2).unwrap();
    }
    let kept = open(&folder, &captured, &options);
    let pairs = kept.pairs(&captured, None, &1).unwrap();
    assert_eq!(pairs.matches(seen).unwrap(), matches);
    assert_eq!(pairs.verified(seen, &matches, &2).unwrap().unwrap(), verified);

    assert_eq!(kept.pairs(&captured, None, &2).unwrap().matches(seen), None, "other options");
    assert_eq!(pairs.verified(seen, &matches, &3).unwrap(), None, "other options");
    let other = kept.pairs(&captured, None, &2).unwrap();
    assert_eq!(other.verified(seen, &matches, &2).unwrap(), None, "of other matches");
    let film = Frames { frames: captured.frames.iter().rev().cloned().collect(), ..captured.clone() };
    assert_eq!(kept.pairs(&film, None, &1).unwrap().matches(seen), None, "another order");
    // What is of images or keypoints that are not there is not believed.
    assert_eq!(pairs.matches(&seen[..1]), None);
    let few: Vec<_> =
        seen.iter().map(|f| Features { keypoints: f.keypoints[..9].to_vec(), descriptors: vec![] }).collect();
    assert_eq!(pairs.matches(&few), None);
    assert_eq!(pairs.verified(&few, &matches, &2).unwrap(), None);
    assert_eq!(pairs.verified(seen, &matches[..2], &2).unwrap(), None);
    let turned = [matches[1].clone(), matches[0].clone(), PairMatches { first: 1, ..matches[2].clone() }];
    assert_eq!(pairs.verified(seen, &turned, &2).unwrap(), None);

    // Those of an object stand beside those of the whole.
    let masks = |value| [GrayImage::from_pixel(4, 2, image::Luma([value])), GrayImage::new(3, 3)];
    let of_object = kept.pairs(&captured, Some(&masks(1)), &1).unwrap();
    assert_eq!(of_object.matches(seen), None);
    of_object.keep_matches(&matches[..1]);
    assert_eq!(of_object.matches(seen).unwrap(), matches[..1]);
    assert_eq!(pairs.matches(seen).unwrap(), matches);
    assert_eq!(kept.pairs(&captured, Some(&masks(2)), &1).unwrap().matches(seen), None, "other masks");

    let captured = frames(pictures, &["one", "two, retouched"]);
    let kept = open(&folder, &captured, &options);
    assert_eq!(kept.pairs(&captured, None, &1).unwrap().matches(seen), None, "of another picture");
}

#[test]
fn what_cannot_be_written_is_not_kept() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("kept");
    let captured = frames(place.path(), &["one"]);
    let kept = open(&folder, &captured, &FeatureOptions::default());
    std::fs::remove_dir(&folder).unwrap();
    kept.keep_features(0, &features(3, 1));
    std::fs::create_dir(&folder).unwrap();
    kept.keep_features(0, &features(3, 1));
    assert_eq!(names(&folder).len(), 0, "nothing is tried again");
    std::fs::remove_dir(&folder).unwrap();
    std::fs::write(&folder, "a file").unwrap();
    assert!(Kept::open(&folder, &captured, &FeatureOptions::default(), &Control::new()).is_err());
}
