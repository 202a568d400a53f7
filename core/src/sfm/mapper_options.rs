//! The numbers of the mapper.
//!
//! They suit captures of any size and are not for the user. Each says what it means, in which unit, and where it is
//! from; "chosen by hand" says that nobody has measured how much depends on it.

use super::levenberg_marquardt::Stopping;
use super::projection::Loss;
use super::resection::ResectionOptions;
use crate::defaults::with_defaults;

with_defaults! {
    /// What both mappers, and all that is done to their maps, have in common; and the numbers of each.
    #[derive(Debug, Clone)]
    pub(crate) struct MapperOptions {
        /// Largest reprojection error of an observation in a finished map, pixels. COLMAP's
        /// (`filter_max_reproj_error`).
        pub(crate) max_error: f64 = 4.0,
        /// Smallest angle at which the rays of a point meet, radians: 1.43 degrees, where COLMAP has 1.5
        /// (`filter_min_tri_angle`). Measured on six captures with poses: with COLMAP's, four come out the same or
        /// nearly so, of the other two one is a little better and one a little worse.
        pub(crate) min_angle: f64 = 0.025,
        /// An image with fewer observations is not registered. COLMAP asks as many matches of a pair
        /// (`min_num_matches`).
        pub(crate) min_observations: usize = 15,
        /// A match agrees with the poses if both rays are this near to the epipolar plane of the other, pixels: twice
        /// [`Self::max_error`], because poses that are still to be adjusted are off, too. Chosen by hand.
        pub(crate) max_epipolar_error: f64 = 8.0,
        /// Standard deviation of the prior that holds the distortion coefficients (of the plane z = 1) near zero.
        /// Lenses of phones and cameras are within a few of it; a capture that says little about its lens would else
        /// bend it to fit the noise. Chosen by hand.
        pub(crate) distortion_prior: f64 = 0.05,
        /// Whether the focal length is an unknown; it is none where the pictures were computed, as sides of panoramas are.
        pub(crate) refine_focal: bool = true,
        /// All images at once.
        pub(crate) global: GlobalOptions = GlobalOptions::default(),
        /// One image after the other.
        pub(crate) incremental: IncrementalOptions = IncrementalOptions::default(),
        /// Pictures by other cameras.
        pub(crate) joining: JoiningOptions = JoiningOptions::default(),
        /// What is done to a map of either kind.
        pub(crate) completion: CompletionOptions = CompletionOptions::default(),
        /// The last adjustments.
        pub(crate) polishing: PolishingOptions = PolishingOptions::default(),
        /// Long paths.
        pub(crate) sections: SectionOptions = SectionOptions::default(),
        /// Another start for maps that hang together by little.
        pub(crate) even_steps: EvenStepsOptions = EvenStepsOptions::default(),
        /// Which maps are made at all.
        pub(crate) attempts: AttemptOptions = AttemptOptions::default(),
    }
}

/// An error that is allowed: the larger of two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tolerance {
    /// As an angle at the camera, degrees: errors of poses are angles, whatever the size of the picture.
    pub(crate) degrees: f64,
    /// Pixels.
    pub(crate) pixels: f64,
}

/// A round of adjustment of the global mapper.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    /// Observations with a larger error are left out; never less than [`MapperOptions::max_error`].
    pub(crate) tolerance: Tolerance,
    /// Scale of Cauchy's loss, pixels.
    pub(crate) loss_scale: f64,
}

impl Round {
    fn new(degrees: f64, pixels: f64, loss_scale: f64) -> Self {
        Self { tolerance: Tolerance { degrees, pixels }, loss_scale }
    }
}

with_defaults! {
    /// The global mapper.
    #[derive(Debug, Clone)]
    pub(crate) struct GlobalOptions {
        /// Tracks per image for positioning: enough for the geometry, and fast. Chosen by hand.
        pub(crate) positioning_tracks: usize = 300,
        /// Tracks per image for its adjustments. GLOMAP's documentation advises about as many.
        pub(crate) adjustment_tracks: usize = 1000,
        /// Positions with which a smaller fraction of the observations agrees are tried again from random starts.
        /// Chosen by hand.
        pub(crate) good_agreement: f64 = 0.7,
        /// Random starts at most. Chosen by hand.
        pub(crate) random_starts: u64 = 3,
        /// Error of the observations that the first adjustments begin with: positioning leaves errors of a degree or
        /// two.
        pub(crate) first_tolerance: Tolerance = Tolerance { degrees: 1.5, pixels: 12.0 },
        /// How the errors count in the first adjustments, which hold the rotations at first (GLOMAP, Pan et al., ECCV
        /// 2024, section 3.3, does the same).
        pub(crate) first_loss: Loss = Loss::Huber(4.0),
        /// When the first adjustments end. Chosen by hand.
        pub(crate) first_stopping: Stopping = Stopping { max_iterations: 15, tolerance: 1e-3 },
        /// The adjustments after them, ever narrower as GLOMAP's. Limits and scales chosen by hand.
        pub(crate) rounds: [Round; 3] =
            [Round::new(0.6, 0.0, 3.0), Round::new(0.0, 8.0, 2.0), Round::new(0.0, 0.0, 1.0)],
        /// When one of these ends. Chosen by hand.
        pub(crate) stopping: Stopping = Stopping { max_iterations: 20, tolerance: 1e-3 },
    }
}

with_defaults! {
    /// How a long path is mapped section by section.
    #[derive(Debug, Clone)]
    pub(crate) struct SectionOptions {
        /// Stations from which a path is long. Chosen by hand.
        pub(crate) fewest: usize = 400,
        /// Stations of a section. Chosen by hand.
        pub(crate) length: usize = 240,
        /// Stations that a section shares with the next one: as many as there are in half a room. Chosen by hand.
        pub(crate) overlap: usize = 80,
        /// Stations by which one section is put onto the next. Chosen by hand.
        pub(crate) joint: usize = 25,
        /// How far off the centres of these may be then, over how far they are from their middle. Chosen by hand: in houses they
        /// were off by 0.0012 at most.
        pub(crate) most_disagreement: f64 = 0.1,
        /// Tracks per image for the adjustments of a section. Chosen by hand.
        pub(crate) tracks: usize = 500,
        /// More pairs than this part that lead from one section past the next make the path more than a chain. Chosen by hand.
        pub(crate) most_loops: f64 = 0.01,
    }
}

with_defaults! {
    /// The incremental mapper.
    #[derive(Debug, Clone)]
    pub(crate) struct IncrementalOptions {
        /// Initial pairs tried. Chosen by hand.
        pub(crate) initial_pairs: usize = 4,
        /// Of more images than this, no other initial pair is tried once one has placed no more than one before it. Chosen by hand.
        pub(crate) many_images: usize = 100,
        /// An initial pair is not the better for more inliers than this. Chosen by hand.
        pub(crate) initial_inliers: f64 = 400.0,
        /// Median angle in degrees at which the rays of the inliers of a good initial pair meet: below the first,
        /// depths are uncertain; above the second, few features are found again (COLMAP asks for 16 at least,
        /// `init_min_tri_angle`). Chosen by hand.
        pub(crate) initial_angles: (f64, f64) = (10.0, 40.0),
        /// What an initial pair counts whose matches lie on a plane, over one whose matches do not: its pose is
        /// ambiguous. Chosen by hand.
        pub(crate) planar_pair: f64 = 0.3,
        /// Images placed in one round see at least this fraction of the points that the best one sees. Chosen by hand.
        pub(crate) round_ratio: f64 = 0.6,
        /// Times that an image may fail. COLMAP's (`max_reg_trials`).
        pub(crate) max_failures: u8 = 3,
        /// When an image counts as placed. The fraction is COLMAP's (`abs_pose_min_inlier_ratio`), which takes an error
        /// of 12 pixels and 30 inliers; chosen by hand.
        pub(crate) resection: ResectionOptions = ResectionOptions { max_error: 6.0, seed: 1, ..Default::default() },
        /// Images from which the focal length is an unknown: two or three say too little about it. Chosen by hand.
        pub(crate) min_images_for_focal: usize = 4,
        /// Images from which the distortion is one. Chosen by hand.
        pub(crate) min_images_for_distortion: usize = 6,
        /// How errors count in the adjustments. Chosen by hand.
        pub(crate) loss: Loss = Loss::Cauchy(1.5),
        /// When an adjustment ends. Chosen by hand.
        pub(crate) stopping: Stopping = Stopping { max_iterations: 15, tolerance: 1e-4 },
    }
}

with_defaults! {
    /// The completion of a map.
    #[derive(Debug, Clone)]
    pub(crate) struct CompletionOptions {
        /// An image is in the wrong place if a smaller fraction of its matches agrees with the map. Chosen by hand.
        pub(crate) min_support: f64 = 0.4,
        /// Images of a group share this many points pair by pair: what hangs together by fewer has a scale and a place
        /// by chance. Chosen by hand.
        pub(crate) rigid_points: usize = 15,
        /// Times that an image is tried. Chosen by hand.
        pub(crate) max_tries: u8 = 2,
        /// When an image counts as placed by the matches of verified pairs. The errors allowed are those of poses that
        /// are still to be adjusted. Chosen by hand.
        pub(crate) resection: ResectionOptions = ResectionOptions { max_error: 8.0, seed: 2, ..Default::default() },
        /// When it does by all candidate matches, where those are not enough: matches of pairs that were too weak to be
        /// verified may be enough together. Most of them are wrong, so fewer have to agree, but more of them. Chosen by
        /// hand.
        pub(crate) loose_resection: ResectionOptions = ResectionOptions {
            max_error: 8.0,
            seed: 2,
            min_inliers: 20,
            min_inlier_ratio: 0.1,
            ..Default::default()
        },
        /// Largest reprojection error of the points that the next images are placed by, pixels. Chosen by hand.
        pub(crate) max_error: f64 = 8.0,
        /// How errors count in the adjustment of every round. Chosen by hand.
        pub(crate) loss: Loss = Loss::Cauchy(1.0),
        /// Tracks per image for these, the longest: enough for the poses, from which all points are then made anew.
        /// GLOMAP's documentation advises about as many.
        pub(crate) adjustment_tracks: usize = 1000,
        /// When they end, and the one of all points that follows. Chosen by hand.
        pub(crate) stopping: Stopping = Stopping { max_iterations: 20, tolerance: 1e-4 },
    }
}

with_defaults! {
    /// The last adjustments of a map, and which intrinsics it may refine.
    #[derive(Debug, Clone)]
    pub(crate) struct PolishingOptions {
        /// Scale of Cauchy's loss in standard deviations of the keypoints: 95 % as efficient as least squares where
        /// errors are normal (Holland & Welsch, "Robust regression using iteratively reweighted least-squares", 1977),
        /// ...
        pub(crate) loss_scale: f64 = 2.385,
        /// ... at least and at most this many pixels. Chosen by hand.
        pub(crate) loss_pixels: (f64, f64) = (0.1, 1.0),
        /// When the first adjustment ends, which only has to show how small the errors of better keypoints are. Chosen by
        /// hand.
        pub(crate) first_stopping: Stopping = Stopping { max_iterations: 10, tolerance: 1e-3 },
        /// When another one ends. Chosen by hand.
        pub(crate) stopping: Stopping = Stopping { max_iterations: 30, tolerance: 1e-6 },
        /// Cameras that an adjustment would move by less than this many standard deviations are at rest. What the cost still
        /// gains then are single points with wrong observations. Chosen by hand.
        pub(crate) rest: f64 = 0.3,
        /// Standard deviation of the principal point's prior, over the longer side of the picture. Cameras for
        /// photographs are within 1 to 3 %; cropped pictures may be further off.
        pub(crate) principal_point_prior: f64 = 0.015,
        /// The principal point is refined only if its standard deviation falls to this fraction of the prior's. On
        /// captures with exact calibration errors are 2 to 6 deviations: these do not know what the lens model leaves
        /// out.
        pub(crate) principal_point_gain: f64 = 0.15,
        /// A parameter is refined only if it is this many standard deviations from what it is without: the image
        /// centre, which cameras that crop and stabilise their video aim at, or no second radial coefficient. An
        /// estimate that cannot be told from that would turn all poses by its error and gain nothing.
        pub(crate) significance: f64 = 4.0,
        /// A principal point this many standard deviations from the image centre is refined however large these are:
        /// errors of two to six of them do not explain it, a cropped picture does.
        pub(crate) certainty: f64 = 8.0,
    }
}

with_defaults! {
    /// Another start, with steps as long as those beside them.
    #[derive(Debug, Clone)]
    pub(crate) struct EvenStepsOptions {
        /// A step is weak that is crossed by fewer points which three stations or more see, ...
        pub(crate) weak_step: usize = 100,
        /// ... or that is, in a video, this many times as long as those beside it. Of 300 generated films, steps of sound ones were up to
        /// 1.7 times as long as usual, those of six that had come apart 14 times or more.
        pub(crate) long_step: f64 = 5.0,
        /// From a step of a video this many times as long as those beside it, or where fewer matches agree than
        /// [`AttemptOptions::agreeing_matches`], a start with all steps of one length is tried, too, ...
        pub(crate) uneven_step: f64 = 3.0,
        /// ... up to this many stations. Both chosen by hand.
        pub(crate) most_equal: usize = 100,
    }
}

with_defaults! {
    /// When another map is tried.
    #[derive(Debug, Clone)]
    pub(crate) struct AttemptOptions {
        /// Up to this many images the incremental mapper is tried too unless the global map is certain: few pictures have wide
        /// baselines, where it is often better. Chosen by hand.
        pub(crate) few_images: usize = 20,
        /// A global map is certain that has all images, comes without warnings, and with which this fraction of the verified
        /// matches agrees. Of 26 films of 5 to 20 pictures where it was so, the incremental mapper found as many observations in
        /// all (within 1 in 1000), and of three sets of photographs the same map; it took up to a third of the time.
        pub(crate) certain_matches: f64 = 0.995,
        /// Up to this many it is also tried where the global map leaves images out or comes with warnings. Chosen by
        /// hand.
        pub(crate) some_images: usize = 60,
        /// Of more than this it is only tried if the global map is not sound: it adjusts the whole map every few images, which
        /// takes the square of their number, an hour for some thousands. Chosen by hand.
        pub(crate) many_images: usize = 1000,
        /// It is also tried where a smaller fraction of the verified matches agrees with the global map: maps in two
        /// pieces of different scale pass every other figure. Chosen by hand.
        pub(crate) agreeing_matches: f64 = 0.95,
        /// Relative poses are estimated again if the logarithm of the focal length has moved by more than this since:
        /// rotations and inliers of an essential matrix suffer from a focal length that is wrong by this much. Chosen
        /// by hand.
        pub(crate) focal_change: f64 = 0.1,
        /// Estimates of the relative poses at most. Chosen by hand.
        pub(crate) focal_rounds: usize = 3,
    }
}

with_defaults! {
    /// How the lens of another camera is found. All chosen by hand.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct JoiningOptions {
        /// Focal lengths that are tried, over the longer side of the picture: from that of a very wide lens to that of a
        /// telephoto lens of four times the usual length.
        pub(crate) focals: (f64, f64) = (0.35, 4.5),
        /// Ratio of one to the next: with one that is off by half of it most points still fit.
        pub(crate) ratio: f64 = 1.1,
        /// Pictures of a camera, those that see most points, that are asked.
        pub(crate) pictures: usize = 6,
        /// Points that they must see in all through the lens that is found: a focal length takes more of them than a pose.
        pub(crate) min_inliers: usize = 60,
        /// How a picture is placed while the focal length is sought. Where it is right most points fit, and few samples do.
        pub(crate) resection: ResectionOptions = ResectionOptions { max_samples: 300, ..ResectionOptions::default() },
    }
}
