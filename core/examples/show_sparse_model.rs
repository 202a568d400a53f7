//! Describes a COLMAP model and draws its poses: `cargo run --release --example show_sparse_model MODEL POSES.jpg`.

#![allow(clippy::print_stdout)]

use std::path::Path;

use libreconstruct::camera::{SparseModel, plot_poses};
use libreconstruct::presentation::{CameraData, CameraType, choose_preview_image, turntable_path};

fn main() -> libreconstruct::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, model, picture] = &arguments[..] else {
        return Err(libreconstruct::Error::argument("two arguments are needed: MODEL POSES.jpg"));
    };
    let model = SparseModel::read(Path::new(model))?;
    println!(
        "{} cameras, {} images, {} points, {:.2} images a point, {:.3} px",
        model.cameras.len(),
        model.images.len(),
        model.points.len(),
        model.mean_track_length(),
        model.mean_reprojection_error()
    );
    if let Some(preview) = choose_preview_image(&model, &Default::default()) {
        println!("shown best by {}", model.images[&preview].name);
        for camera_type in [CameraType::Orbital, CameraType::Drone] {
            println!("{:?}", CameraData::from_model(&model, preview, camera_type));
        }
        let path = turntable_path(&model, 240);
        let steps = (0..path.len()).map(|k| (path[(k + 1) % path.len()].centre() - path[k].centre()).norm());
        let turns = (0..path.len()).map(|k| path[(k + 1) % path.len()].rotation.angle_to(&path[k].rotation));
        println!(
            "film of 240 pictures: {:.3} units long, at most {:.4} units and {:.2} degrees a picture",
            steps.clone().sum::<f64>(),
            steps.fold(0.0, f64::max),
            turns.fold(0.0, f64::max).to_degrees()
        );
    }
    plot_poses(&model, Path::new(picture))
}
