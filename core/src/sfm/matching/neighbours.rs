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

/// Places beyond the last one: a vector that begins within the columns may end there. What it holds of them has no meaning.
const BEYOND: usize = 7;

/// The neighbours found between two sets of descriptors so far.
pub(super) struct Found {
    /// Of the rows; they name places in the order in which columns are searched.
    pub(super) of_rows: Nearest,
    /// Of the columns, by place, and of [`BEYOND`] more.
    pub(super) of_columns: Nearest,
}

impl Found {
    /// Nothing yet.
    pub(super) fn new(rows: usize, columns: usize) -> Self {
        Self { of_rows: Nearest::new(rows), of_columns: Nearest::new(columns + BEYOND) }
    }

    /// The neighbours of rows and columns, in the order of these; `order` is the column at every place.
    pub(super) fn finish(self, order: &[u32]) -> (Nearest, Nearest) {
        let Self { mut of_rows, of_columns } = self;
        for index in &mut of_rows.index {
            // Those that met no column keep the mark of that.
            *index = order.get(*index as usize).copied().unwrap_or(u32::MAX);
        }
        let mut by_column = Nearest::new(order.len());
        for (place, &column) in order.iter().enumerate() {
            let column = column as usize;
            by_column.best[column] = of_columns.best[place];
            by_column.second[column] = of_columns.second[place];
            by_column.index[column] = of_columns.index[place];
        }
        (of_rows, by_column)
    }
}

/// Positions of the bits that are set, rising.
#[cfg(target_arch = "x86_64")]
pub(super) fn set_bits(mut mask: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (bit < 16).then_some(bit)
    })
}
