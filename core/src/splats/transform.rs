//! Moves whole scenes: turn, scale, shift, colours that depend on the direction included.

use glam::{DMat3, DVec3, dvec4};
use nalgebra::{DMatrix, DVector, Quaternion, UnitQuaternion, Vector3};
use rayon::prelude::*;

use super::harmonics::{basis, sh_coefficients};
use super::values::Splats;
use crate::error::{Error, Result};

impl Splats {
    /// Moves the world by the similarity `x' = scale * rotation * x + translation`, as
    /// [`SparseModel::transform`](crate::camera::SparseModel::transform) does: what a camera that moves along sees stays.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the scale is not positive or a number is not finite.
    pub fn transform(
        &mut self,
        scale: f64,
        rotation: &UnitQuaternion<f64>,
        translation: &Vector3<f64>,
    ) -> Result<()> {
        if !(scale.is_finite() && scale > 0.0) {
            return Err(Error::argument(format!("scale is {scale}: it must be positive and finite")));
        }
        if !rotation.coords.iter().chain(translation.iter()).all(|v| v.is_finite()) {
            return Err(Error::argument("the rotation or translation is not finite"));
        }
        let matrix = DMat3::from_cols_array_2d(&(rotation.to_rotation_matrix().into_inner() * scale).into());
        let shift = DVec3::from_array((*translation).into());
        self.means.par_iter_mut().for_each(|mean| {
            *mean = (matrix * mean.as_dvec3() + shift).as_vec3();
        });
        let growth = scale.ln() as f32;
        self.log_scales.par_iter_mut().for_each(|value| *value += growth);
        if *rotation != UnitQuaternion::identity() {
            let turn = rotation.into_inner();
            self.rotations.par_iter_mut().for_each(|rotation| {
                let [w, x, y, z] = rotation.as_dvec4().to_array();
                let turned = turn * Quaternion::new(w, x, y, z);
                *rotation = dvec4(turned.w, turned.i, turned.j, turned.k).as_vec4();
            });
            self.turn_harmonics(rotation);
        }
        Ok(())
    }

    fn turn_harmonics(&mut self, rotation: &UnitQuaternion<f64>) {
        let coefficients = sh_coefficients(self.sh_degree);
        // The constant band looks the same from everywhere.
        let bands: Vec<DMatrix<f64>> = (1..=self.sh_degree).map(|l| band_rotation(l, rotation)).collect();
        self.sh.par_chunks_exact_mut(3 * coefficients).for_each(|colours| {
            for matrix in &bands {
                // Band l has 2l + 1 coefficients and begins at l².
                let (count, first) = (matrix.nrows(), ((matrix.nrows() - 1) / 2).pow(2));
                for channel in 0..3 {
                    let place = |k: usize| 3 * (first + k) + channel;
                    let old = DVector::from_fn(count, |k, _| f64::from(colours[place(k)]));
                    let new = matrix * old;
                    (0..count).for_each(|k| colours[place(k)] = new[k] as f32);
                }
            }
        });
    }
}

/// How the coefficients of band `l` change when the function is turned: a turned harmonic is a combination of those of its
/// band, so as many directions as the band has coefficients determine it.
fn band_rotation(l: u32, rotation: &UnitQuaternion<f64>) -> DMatrix<f64> {
    let (first, count) = ((l * l) as usize, (2 * l + 1) as usize);
    // Directions on a spiral: well spread, and no two opposite (odd and even bands could not tell those apart).
    let direction = |k: usize| {
        let z = 0.9 - 1.1 * k as f64 / count as f64;
        let (sin, cos) = (2.399_963 * k as f64 + 0.3).sin_cos();
        let radius = (1.0 - z * z).sqrt();
        Vector3::new(radius * cos, radius * sin, z)
    };
    let sampled = |turned: bool| {
        DMatrix::from_fn(count, count, |k, m| {
            let d = if turned { rotation.inverse() * direction(k) } else { direction(k) };
            basis(l, d.into(), |k| k)[first + m]
        })
    };
    // f'(d) = f(R⁻¹ d) at all of them: b(d) c' = b(R⁻¹ d) c. The directions are fixed and independent (a test
    // looks), so there is a solution.
    sampled(false).lu().solve(&sampled(true)).unwrap_or_else(|| DMatrix::identity(count, count))
}

#[cfg(test)]
mod tests {
    use super::super::test_scenes::random_splats;
    use super::*;
    use crate::camera::{Camera, CameraModel, Pose};
    use crate::raster::cpu::CpuRasteriser;
    use crate::raster::{Rasteriser, Rendering};
    use crate::raster::{View, load_for_viewing};

    fn render(splats: &Splats, pose: &Pose) -> Rendering {
        let camera = Camera::from_focal(CameraModel::Pinhole, 60.0, 64, 48);
        let mut rasteriser = CpuRasteriser::<f64>::new();
        load_for_viewing(&mut rasteriser, splats).unwrap();
        let view = View::new(&camera, pose);
        rasteriser.render(&view, splats.sh_degree, [0.0; 3]).unwrap()
    }

    #[test]
    fn a_camera_that_moves_along_sees_the_same() {
        let position = Vector3::new(1.0, -2.0, -9.0);
        let pose = Pose::look_at(&position, &Vector3::zeros(), &-Vector3::y()).unwrap();
        let rotation = UnitQuaternion::from_euler_angles(0.7, -1.9, 2.6);
        let translation = Vector3::new(3.0, -1.0, 0.5);
        for degree in 0..=3 {
            let mut splats = random_splats(11, 400, degree);
            let before = render(&splats, &pose);
            splats.transform(1.7, &rotation, &translation).unwrap();
            let after = render(&splats, &pose.in_moved_world(1.7, &rotation, &translation));
            let worst =
                before.rgba.iter().zip(&after.rgba).flat_map(|(a, b)| (0..4).map(|k| (a[k] - b[k]).abs()));
            let worst = worst.fold(0.0, f32::max);
            assert!(worst < 2e-3, "degree {degree}: {worst}");
            let spread = before.rgba.iter().map(|p| p[3]).fold(0.0, f32::max);
            assert!(spread > 0.5, "nothing to see: {spread}");
        }
    }

    #[test]
    fn band_rotations_are_orthogonal_and_compose() {
        let (a, b) = (
            UnitQuaternion::from_euler_angles(0.3, 1.0, -2.0),
            UnitQuaternion::from_euler_angles(-1.3, 0.2, 0.9),
        );
        for l in 1..=3 {
            let (ma, mb) = (band_rotation(l, &a), band_rotation(l, &b));
            let unit = DMatrix::<f64>::identity(ma.nrows(), ma.nrows());
            assert!((&ma * ma.transpose() - &unit).norm() < 1e-10, "{l}");
            assert!((&ma * &mb - band_rotation(l, &(a * b))).norm() < 1e-10, "{l}");
        }
    }

    #[test]
    fn there_and_back_is_where_it_was() {
        let rotation = UnitQuaternion::from_euler_angles(1.0, 2.0, 3.0);
        let whole = random_splats(3, 50, 3);
        let mut splats = whole.clone();
        splats.transform(3.0, &rotation, &Vector3::zeros()).unwrap();
        splats.transform(1.0 / 3.0, &rotation.inverse(), &Vector3::zeros()).unwrap();
        let worst = splats.sh.iter().zip(&whole.sh).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-5, "{worst}");
        for scale in [0.0, -1.0, f64::NAN] {
            assert!(splats.transform(scale, &rotation, &Vector3::zeros()).is_err());
        }
    }
}
