//! Where the nodes of a scene put its meshes.

use std::rc::Rc;

use nalgebra::{Matrix3, Matrix4, Quaternion, Rotation3, UnitQuaternion, Vector3};

use super::document::{Document, Node};

/// By how much the columns of a matrix may differ from those of a rotation: what single precision and a dozen nested nodes leave.
const TOLERANCE: f64 = 1e-4;

/// A mesh in its place.
pub(super) struct Placement {
    pub(super) mesh: u32,
    /// Nothing if it stays where it is.
    pub(super) motion: Option<Motion>,
}

/// The similarity `x' = scale * rotation * x + translation`.
pub(super) struct Motion {
    pub(super) scale: f64,
    pub(super) rotation: UnitQuaternion<f64>,
    pub(super) translation: Vector3<f64>,
}

/// The meshes with Gaussian splats of the scene that is to be shown, in the order of its nodes. A file without scenes shows
/// all its nodes, and one without nodes all its meshes.
pub(super) fn placements(document: &Document) -> Result<Vec<Placement>, String> {
    if document.nodes.is_empty() {
        let meshes = 0..document.meshes.len();
        // A description has not as many meshes as such a number can count.
        return Ok(meshes.map(|mesh| Placement { mesh: mesh as u32, motion: None }).collect());
    }
    let mut seen = vec![false; document.nodes.len()];
    // Nodes are a forest: one that comes up twice is below itself, or would make many meshes of one.
    let mut visit = |node: u32| match seen.get_mut(node as usize) {
        None => Err(format!("it has no node {node}")),
        Some(true) => Err(format!("node {node} is in two places")),
        Some(first) => {
            *first = true;
            Ok(node)
        }
    };
    let roots = match document.scenes.get(document.scene.unwrap_or(0) as usize) {
        Some(scene) => scene.nodes.clone(),
        None if document.scenes.is_empty() => top_nodes(&document.nodes),
        None => return Err("it has no such scene as it is to show".into()),
    };
    // Each is asked once: many nodes may show one mesh of many primitives.
    let mut known: Vec<Option<bool>> = vec![None; document.meshes.len()];
    let mut has_splats = |mesh: u32| -> Result<bool, String> {
        if let Some(Some(has)) = known.get(mesh as usize) {
            return Ok(*has);
        }
        let has = !document.splat_primitives(mesh)?.is_empty();
        // One that is not there was refused.
        known[mesh as usize] = Some(has);
        Ok(has)
    };
    let world = Rc::new(Matrix4::identity());
    let mut waiting = Vec::new();
    for root in roots.into_iter().rev() {
        waiting.push((visit(root)?, Rc::clone(&world)));
    }
    let mut placements = Vec::new();
    while let Some((number, parent)) = waiting.pop() {
        // `visit` has looked whether it is there.
        let node = &document.nodes[number as usize];
        let place = match local(node) {
            None => parent,
            Some(own) => Rc::new(*parent * own),
        };
        if let Some(mesh) = node.mesh
            && has_splats(mesh)?
        {
            let motion = if *place == Matrix4::identity() { None } else { Some(similarity(&place, number)?) };
            placements.push(Placement { mesh, motion });
        }
        for child in node.children.iter().rev() {
            waiting.push((visit(*child)?, Rc::clone(&place)));
        }
    }
    Ok(placements)
}

/// The nodes that are below no other.
fn top_nodes(nodes: &[Node]) -> Vec<u32> {
    let mut is_below = vec![false; nodes.len()];
    for child in nodes.iter().flat_map(|node| &node.children) {
        if let Some(below) = is_below.get_mut(*child as usize) {
            *below = true;
        }
    }
    (0..).zip(is_below).filter(|(_, below)| !below).map(|(node, _)| node).collect()
}

/// What a node does to what is below it; nothing for one that says nothing.
fn local(node: &Node) -> Option<Matrix4<f64>> {
    if let Some(matrix) = &node.matrix {
        return Some(Matrix4::from_column_slice(matrix.as_slice()));
    }
    if node.translation.is_none() && node.rotation.is_none() && node.scale.is_none() {
        return None;
    }
    let [x, y, z, w] = node.rotation.as_deref().copied().unwrap_or([0.0, 0.0, 0.0, 1.0]);
    let scale = node.scale.as_deref().copied().unwrap_or([1.0; 3]);
    let rotation = UnitQuaternion::new_normalize(Quaternion::new(w, x, y, z)).to_rotation_matrix();
    let mut matrix = (rotation.into_inner() * Matrix3::from_diagonal(&scale.into())).to_homogeneous();
    let translation = Vector3::from(node.translation.as_deref().copied().unwrap_or([0.0; 3]));
    matrix.fixed_view_mut::<3, 1>(0, 3).copy_from(&translation);
    Some(matrix)
}

fn similarity(matrix: &Matrix4<f64>, node: u32) -> Result<Motion, String> {
    let distorts = || {
        format!("node {node} distorts its splats: turning, shifting and scaling all axes alike are supported")
    };
    let linear: Matrix3<f64> = matrix.fixed_view::<3, 3>(0, 0).into_owned();
    let scale = linear.determinant().cbrt();
    if !(scale.is_finite() && scale > 0.0) {
        return Err(distorts());
    }
    let rotation = linear / scale;
    let error = (rotation.transpose() * rotation - Matrix3::identity()).amax();
    let last_row = [(3, 0), (3, 1), (3, 2)].map(|place| matrix[place]);
    // What is no number passes no comparison.
    let is_similarity = error <= TOLERANCE && last_row == [0.0; 3] && matrix[(3, 3)] == 1.0;
    if !is_similarity {
        return Err(distorts());
    }
    let rotation = UnitQuaternion::from_rotation_matrix(&Rotation3::from_matrix_unchecked(rotation));
    let rotation = UnitQuaternion::new_normalize(rotation.into_inner());
    Ok(Motion { scale, rotation, translation: matrix.fixed_view::<3, 1>(0, 3).into_owned() })
}
