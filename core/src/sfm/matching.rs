//! Feature matches between two pictures.

/// Candidate matches of the pair (first, second) with first < second.
#[derive(Debug, Clone, PartialEq)]
pub struct PairMatches {
    /// Index of the first picture.
    pub first: u32,
    /// Index of the second picture.
    pub second: u32,
    /// (keypoint of the first, keypoint of the second), best (lowest ratio of distances) first. No keypoint twice.
    pub matches: Vec<[u32; 2]>,
}
