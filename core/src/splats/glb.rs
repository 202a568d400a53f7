//! `.glb` files: binary glTF 2.0 with the extension `KHR_gaussian_splatting`, which game engines and map viewers read.
//!
//! One primitive of points, each attribute in an array of its own, nothing rounded: about as large as the `.ply`. In the file
//! scales are lengths, opacities are 0 to 1, quaternions are x y z w and of unit length; the spherical harmonics are those of
//! this engine. The frame of the file is glTF's: x left, y up, z forward (the front of a thing looks towards +z), so scenes
//! are turned by 180 degrees about z on the way out and back on the way in, spherical harmonics included. That is how
//! splat-transform and Niantic's converters place the `.ply` of the same scene, too.
//!
//! glTF has no word for scenes that were trained with the anti-aliasing filter. `"antialiased": true` among the `extras` of
//! the primitive tells them apart here; other programs ignore it.
//!
//! Source: the extension's text in the repository of glTF (`extensions/2.0/Khronos/KHR_gaussian_splatting`), as of the release
//! candidate, in which scales are lengths; drafts had logarithms.

mod columns;
mod container;
mod document;
mod frame;
mod nodes;
mod primitive;
mod write;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use super::harmonics::sh_coefficients;
use super::source::Source;
use super::values::Splats;
use crate::error::{Error, ErrorKind, Result};
use crate::files;
use document::{Document, EXTENSION};
use primitive::Primitive;

/// What a file of any size may become, bytes: 280,000 splats with all their colours.
const ALWAYS: usize = 64 << 20;
/// How many times its buffer a larger file may become. What this engine writes does not grow; bytes instead of floats and
/// attributes that share an array do, and so does a mesh that stands in many places.
const MAX_RATIO: usize = 16;

impl Splats {
    /// Writes the scene as a `.glb` file, under a temporary name first. Quaternions are normalised; other values are kept to
    /// the last bits that logarithm and exponential leave.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if there are no splats or more than fit into the 4 GB that the format
    /// can count, [`InvalidFile`](ErrorKind::InvalidFile) if a value is not finite or the arrays do not belong together; else
    /// the operating system's.
    pub fn write_glb(&self, path: &Path) -> Result<()> {
        self.check_for_export(".glb")?;
        let layout = write::Layout::new(self)?;
        files::write_atomically(path, |out| layout.write(self, out))
    }

    /// Reads all Gaussian splats of the scene of a `.glb` file: attributes of any type and layout that glTF has, primitives
    /// joined in the order of the nodes, each where its nodes put it. Other meshes are left out, and so are spherical
    /// harmonics beyond degree 3. Quaternions are normalised; opacities of exactly 0 and 1 become ones with a finite logit. A
    /// pipe may take the place of the file.
    ///
    /// # Errors
    /// [`InvalidFile`](ErrorKind::InvalidFile) if it is no `.glb` file, damaged, has no Gaussian splats or values that are not
    /// finite; if it needs what is not known here (another extension, kernel or colour space, compression, buffers in other
    /// files, nodes that distort); or if it would become more than it can honestly hold: 64 MB, or 16 times its size if that
    /// is more.
    pub fn read_glb(path: &Path) -> Result<Self> {
        Self::from_glb(Source::open(path)?)
    }

    /// [`Splats::read_glb`] from a file that is open already.
    pub(super) fn from_glb(source: Source) -> Result<Self> {
        let path = source.path().to_owned();
        let damaged = |why: String| Error::new(ErrorKind::InvalidFile, format!("{}: {why}", path.display()));
        let content = container::read(source).map_err(|failure| match failure {
            container::Failure::System(e) => Error::io("read", &path, e),
            container::Failure::Content(why) => damaged(why),
        })?;
        read_scene(&content.json, &content.buffer).map_err(damaged)
    }
}

/// The splats of a document and its buffer. The error is the sentence that says what is wrong.
fn read_scene(json: &[u8], buffer: &[u8]) -> Result<Splats, String> {
    let document = Document::parse(json)?;
    let placements = nodes::placements(&document)?;
    // Each is opened once, in however many places it stands: a short description has many nodes and many primitives, and what
    // they are together is counted before anything is made of it.
    let mut meshes: BTreeMap<u32, Mesh<'_>> = BTreeMap::new();
    let mut count = 0usize;
    for placement in &placements {
        let mesh = match meshes.entry(placement.mesh) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Mesh::open(&document, placement.mesh, buffer)?),
        };
        count = count.saturating_add(mesh.count);
    }
    let parts = || meshes.values().flat_map(|mesh| &mesh.parts);
    let degree = parts().map(|part| part.degree).max();
    let degree = degree.ok_or_else(|| format!("its scene has no primitive with {EXTENSION}"))?;
    let per_splat = size_of::<f32>() * (11 + 3 * sh_coefficients(degree));
    let size = count.saturating_mul(per_splat);
    if size > ALWAYS && size / MAX_RATIO > buffer.len() {
        return Err(format!("its {} bytes cannot hold the splats it promises", buffer.len()));
    }
    let mut splats = Splats::with_capacity(count, degree);
    splats.antialiased = parts().all(|part| part.antialiased);
    for placement in &placements {
        // All of them are among the meshes.
        for part in &meshes[&placement.mesh].parts {
            match &placement.motion {
                None => part.append(&mut splats)?,
                Some(motion) => {
                    let mut own = Splats::with_capacity(part.count, part.degree);
                    part.append(&mut own)?;
                    own.transform(motion.scale, &motion.rotation, &motion.translation)
                        .map_err(|e| e.to_string())?;
                    append(&mut splats, own);
                }
            }
        }
    }
    frame::turn(&mut splats);
    match splats.first_not_finite() {
        Some(index) => Err(format!("splat {index} is too far away where its nodes put it")),
        None => Ok(splats),
    }
}

/// The splats of a mesh, in however many places it stands.
struct Mesh<'a> {
    parts: Vec<Primitive<'a>>,
    /// Splats of all parts.
    count: usize,
}

impl<'a> Mesh<'a> {
    /// As [`Primitive::open`], for all primitives of the mesh of that number.
    fn open(document: &Document, number: u32, buffer: &'a [u8]) -> Result<Self, String> {
        let primitives = document.splat_primitives(number)?;
        let parts: Vec<Primitive<'a>> = primitives
            .into_iter()
            .map(|primitive| Primitive::open(document, primitive, buffer))
            .collect::<Result<_, _>>()?;
        let count = parts.iter().fold(0usize, |sum, part| sum.saturating_add(part.count));
        Ok(Self { parts, count })
    }
}

/// Appends splats of the same degree or a lower one.
fn append(splats: &mut Splats, mut own: Splats) {
    splats.means.append(&mut own.means);
    splats.log_scales.append(&mut own.log_scales);
    splats.rotations.append(&mut own.rotations);
    splats.opacities.append(&mut own.opacities);
    let missing = 3 * (sh_coefficients(splats.sh_degree) - sh_coefficients(own.sh_degree));
    for colours in own.sh.chunks_exact(3 * sh_coefficients(own.sh_degree)) {
        splats.sh.extend_from_slice(colours);
        splats.sh.extend(std::iter::repeat_n(0.0, missing));
    }
}

#[cfg(test)]
mod tests;
