//! The neighbours that a search has found so far.

/// For each descriptor of one set its neighbours in the other.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Nearest {
    /// Largest dot product, −1 if the other set is empty.
    pub(crate) best: Vec<i32>,
    /// Second largest (equal to the largest if it occurs twice), −1 if the other set has fewer than two.
    pub(crate) second: Vec<i32>,
    /// Where the largest is, `u32::MAX` if the other set is empty.
    pub(crate) index: Vec<u32>,
}

impl Nearest {
    /// No neighbours yet, for `count` descriptors.
    pub(super) fn new(count: usize) -> Self {
        Self { best: vec![-1; count], second: vec![-1; count], index: vec![u32::MAX; count] }
    }

    /// Takes in one dot product; those of one `i` come with `j` rising.
    #[inline(always)]
    pub(super) fn update(&mut self, i: usize, dot: i32, j: u32) {
        if dot > self.second[i] {
            if dot > self.best[i] {
                self.second[i] = self.best[i];
                self.best[i] = dot;
                self.index[i] = j;
            } else {
                self.second[i] = dot;
            }
        }
    }
}
