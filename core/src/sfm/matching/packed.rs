//! Columns as the kernels of the neighbour search read them: laid out in vectors, cell by cell.

use crate::sfm::features::Descriptor;

/// Groups of four components of a descriptor.
pub(super) const QUADS: usize = 32;

/// The vectors of the columns of every cell.
pub(super) struct Packed<T> {
    vectors: Vec<T>,
    /// Where each cell begins, and the end.
    start: Vec<usize>,
}

impl<T> Packed<T> {
    /// `pack` adds the vectors of a cell, of which it is given the columns.
    pub(super) fn new<'a>(
        cells: impl Iterator<Item = &'a [u32]>,
        pack: impl Fn(&[u32], &mut Vec<T>),
    ) -> Self {
        let mut packed = Self { vectors: Vec::new(), start: vec![0] };
        for cell in cells {
            pack(cell, &mut packed.vectors);
            packed.start.push(packed.vectors.len());
        }
        packed
    }

    pub(super) fn of(&self, cell: usize) -> &[T] {
        &self.vectors[self.start[cell]..self.start[cell + 1]]
    }
}

/// Adds the vectors of these columns. A tile has as many as it needs, `tile_vectors` at most; vector (tile, k, v) holds
/// components 4k…4k+3 of the columns of vector v of a tile, as many as it has room for. The last vector is filled up with
/// columns of zeros. The bits of `flipped` are turned over in every byte.
pub(super) fn pack_quads<const BYTES: usize>(
    columns: &[Descriptor],
    order: &[u32],
    tile_vectors: usize,
    flipped: u8,
    packed: &mut Vec<[u8; BYTES]>,
) {
    let lanes = BYTES / 4;
    let first = packed.len();
    packed.resize(first + order.len().div_ceil(lanes) * QUADS, [flipped; BYTES]);
    let tiles = packed[first..].chunks_mut(tile_vectors * QUADS);
    for (order, packed) in order.chunks(tile_vectors * lanes).zip(tiles) {
        let vectors = packed.len() / QUADS;
        for (j, &column) in order.iter().enumerate() {
            let (v, lane) = (j / lanes, j % lanes);
            for (k, components) in columns[column as usize].as_chunks::<4>().0.iter().enumerate() {
                let components = components.map(|component| component ^ flipped);
                packed[k * vectors + v][4 * lane..][..4].copy_from_slice(&components);
            }
        }
    }
}
