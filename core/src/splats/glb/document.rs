//! The description of the scene: what of glTF's JSON is needed to find Gaussian splats. Fields are small, so that a short
//! description cannot become a large value.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Name of the extension, and prefix of its attributes.
pub(super) const EXTENSION: &str = "KHR_gaussian_splatting";
/// What files may require of their readers.
const KNOWN_REQUIREMENTS: [&str; 2] = [EXTENSION, "KHR_mesh_quantization"];
const COLOUR_SPACE: &str = "srgb_rec709_display";
const KERNEL: &str = "ellipse";
/// `mode` of a primitive whose vertices are points.
const POINTS: u32 = 0;
/// `mode` of a primitive that does not say one: triangles.
const USUAL_MODE: u32 = 4;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document {
    pub(super) scene: Option<u32>,
    #[serde(default)]
    pub(super) scenes: Vec<Scene>,
    #[serde(default)]
    pub(super) nodes: Vec<Node>,
    #[serde(default)]
    pub(super) meshes: Vec<Mesh>,
    #[serde(default)]
    pub(super) accessors: Vec<Accessor>,
    #[serde(default)]
    pub(super) buffer_views: Vec<BufferView>,
    #[serde(default)]
    pub(super) buffers: Vec<Buffer>,
    #[serde(default)]
    extensions_required: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Scene {
    #[serde(default)]
    pub(super) nodes: Vec<u32>,
}

#[derive(Deserialize)]
pub(super) struct Node {
    #[serde(default)]
    pub(super) children: Vec<u32>,
    pub(super) mesh: Option<u32>,
    pub(super) matrix: Option<Box<[f64; 16]>>,
    pub(super) translation: Option<Box<[f64; 3]>>,
    pub(super) rotation: Option<Box<[f64; 4]>>,
    pub(super) scale: Option<Box<[f64; 3]>>,
}

#[derive(Deserialize)]
pub(super) struct Mesh {
    #[serde(default)]
    primitives: Vec<MeshPrimitive>,
}

#[derive(Deserialize)]
pub(super) struct MeshPrimitive {
    /// Accessors by the names of attributes.
    #[serde(default)]
    pub(super) attributes: BTreeMap<String, u32>,
    mode: Option<u32>,
    #[serde(default)]
    extensions: Option<Box<PrimitiveExtensions>>,
    extras: Option<Extras>,
}

#[derive(Deserialize)]
struct PrimitiveExtensions {
    #[serde(rename = "KHR_gaussian_splatting")]
    splatting: Option<Splatting>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Splatting {
    kernel: Option<String>,
    color_space: Option<String>,
    #[serde(default)]
    extensions: BTreeMap<String, IgnoredAny>,
}

/// What programs write for themselves: anything.
#[derive(Deserialize)]
#[serde(untagged)]
enum Extras {
    Ours { antialiased: bool },
    Others(IgnoredAny),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Accessor {
    pub(super) buffer_view: Option<u32>,
    #[serde(default)]
    pub(super) byte_offset: u64,
    pub(super) component_type: u32,
    #[serde(default)]
    pub(super) normalized: bool,
    pub(super) count: u64,
    #[serde(rename = "type")]
    pub(super) shape: Box<str>,
    pub(super) sparse: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BufferView {
    pub(super) buffer: u32,
    #[serde(default)]
    pub(super) byte_offset: u64,
    pub(super) byte_length: u64,
    pub(super) byte_stride: Option<u32>,
    #[serde(default)]
    pub(super) extensions: BTreeMap<String, IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Buffer {
    pub(super) byte_length: u64,
    pub(super) uri: Option<IgnoredAny>,
}

impl Document {
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        let document: Self =
            serde_json::from_slice(json).map_err(|e| format!("its description is damaged: {e}"))?;
        let known = |name: &&String| !KNOWN_REQUIREMENTS.contains(&name.as_str());
        match document.extensions_required.iter().find(known) {
            Some(name) => Err(format!("it requires the extension {name:?}, which is not supported")),
            None => Ok(document),
        }
    }

    /// The primitives of a mesh that are Gaussian splats.
    pub(super) fn splat_primitives(&self, mesh: u32) -> Result<Vec<&MeshPrimitive>, String> {
        let mesh = self.meshes.get(mesh as usize).ok_or_else(|| format!("it has no mesh {mesh}"))?;
        let splats = mesh.primitives.iter().filter(|primitive| primitive.splatting().is_some());
        splats.map(|primitive| primitive.check().map(|()| primitive)).collect()
    }
}

impl MeshPrimitive {
    fn splatting(&self) -> Option<&Splatting> {
        self.extensions.as_ref()?.splatting.as_ref()
    }

    /// Whether the splats must be rendered with the anti-aliasing filter.
    pub(super) fn is_antialiased(&self) -> bool {
        matches!(self.extras, Some(Extras::Ours { antialiased: true }))
    }

    /// Whether its splats are of the kind that is known.
    fn check(&self) -> Result<(), String> {
        let Some(splatting) = self.splatting() else { return Ok(()) };
        if let Some(name) = splatting.extensions.keys().next() {
            return Err(format!("its splats need the extension {name:?}, which is not supported"));
        }
        for (what, value, known) in
            [("kernel", &splatting.kernel, KERNEL), ("colour space", &splatting.color_space, COLOUR_SPACE)]
        {
            if let Some(value) = value.as_deref().filter(|value| *value != known) {
                return Err(format!("the {what} of its splats is {value:?}; only {known:?} is supported"));
            }
        }
        match self.mode.unwrap_or(USUAL_MODE) {
            POINTS => Ok(()),
            mode => Err(format!("the mode of its splats is {mode}, not {POINTS} (points)")),
        }
    }
}
