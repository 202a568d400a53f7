//! How much memory the search for poses will take, told when its features are there and the largest part is still to come.

use super::features::Features;
use crate::control::Warning;

/// Bytes for each feature that come on top of itself and its descriptor where most is in use: matches, tracks, equations. With these it
/// was 390 to 870 on seven videos of 48 to 150 frames (docs/growth.md).
const BYTES_PER_FEATURE: u64 = 700;

/// What to tell of a search for poses from these features if it will take more than the `free` bytes: the system ends a process that
/// takes more than there is without a word.
pub(super) fn warning(features: &[Features], free: u64) -> Option<Warning> {
    let count: usize = features.iter().map(|f| f.keypoints.len()).sum();
    let needed = BYTES_PER_FEATURE.saturating_mul(count as u64);
    (needed > free).then(|| {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let message = format!(
            "the search for poses takes about {:.1} GiB of memory from {count} features of {} pictures on, and {:.1} GiB are free: \
             if none is left the system ends the program; fewer or smaller frames take less",
            gib(needed),
            features.len(),
            gib(free)
        );
        Warning::new("memory_short", message)
    })
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable;

    use super::*;
    use crate::sfm::features::Keypoint;

    #[test]
    fn who_has_too_little_memory_is_told_how_much_is_needed() {
        let of =
            |count: usize| Features { keypoints: vec![Keypoint::zeroed(); count], descriptors: Vec::new() };
        let features = [of(1_500_000), of(500_000)];
        assert_eq!(warning(&features, 2_000_000 * BYTES_PER_FEATURE), None);
        let warning = warning(&features, 1 << 30).unwrap();
        assert_eq!(warning.code, "memory_short");
        assert!(warning.message.contains("2000000 features of 2 pictures"), "{}", warning.message);
        assert!(warning.message.contains("1.0 GiB are free"), "{}", warning.message);
    }
}
