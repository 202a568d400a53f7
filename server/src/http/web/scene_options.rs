//! What a job can be asked for, as fields of a form that say what they mean.

use libreconstruct::job::{CameraType, JobRequest, Limits, ReconstructionMethod};
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::form::Form;

/// The fields, filled in as `request` has them.
pub(super) fn fields(request: &JobRequest, limits: &Limits) -> Markup {
    let is_drone = !matches!(request.camera_type, Some(CameraType::Orbital));
    let is_global = request.reconstruction_method == ReconstructionMethod::Glomap;
    html! {
        div.fields {
            label for="training_num_steps" { "Training steps" }
            input #training_num_steps name="training_num_steps" type="number" inputmode="numeric" required min="1"
                max=(limits.max_steps) value=(request.training_num_steps) aria-describedby="about-steps";
            p.help #about-steps { "More take longer and look finer. 7,000 are a good first look." }

            label for="training_max_num_gaussians" { "Gaussians at most" }
            input #training_max_num_gaussians name="training_max_num_gaussians" type="number" inputmode="numeric" required
                min=(limits.min_gaussians) max=(limits.max_gaussians) value=(request.training_max_num_gaussians)
                aria-describedby="about-gaussians";
            p.help #about-gaussians { "The scene is made of these. More show finer detail and make larger files: 1,000,000 are about 20 MB as .spz." }

            div {
                input type="hidden" name="remove_background" value="false";
                input #remove_background type="checkbox" name="remove_background" value="true"
                    checked[request.remove_background] aria-describedby="about-background";
                " " label for="remove_background" { "Only the object" }
            }
            p.help #about-background { "Leaves out what is around what the camera goes around." }

            label for="apriltag_size_mm" { "Size of AprilTags in millimetres" }
            input #apriltag_size_mm name="apriltag_size_mm" type="number" inputmode="decimal" min="1" max="1000" step="any"
                value=[request.apriltag_size_mm] aria-describedby="about-tags";
            p.help #about-tags {
                "If printed tags (tagStandard41h12) lie in the scene, it gets its true size: the edge of their inner white square. Empty: no scale."
            }

            label for="reconstruction_method" { "Camera poses" }
            select #reconstruction_method name="reconstruction_method" aria-describedby="about-method" {
                option value="glomap" selected[is_global] { "all at once (GLOMAP)" }
                option value="colmap" selected[!is_global] { "one after the other (COLMAP)" }
            }
            p.help #about-method { "The other way may help where one finds no cameras." }

            label for="camera_type" { "In the viewer" }
            select #camera_type name="camera_type" {
                option value="drone" selected[is_drone] { "fly through it" }
                option value="orbital" selected[!is_drone] { "turn around it" }
            }
        }
    }
}

/// What a form with these fields asks for, as the body of a request of the interface, whose rules then hold for both. A field that
/// is empty, or that the form does not have, is absent.
pub(super) fn read(form: &Form) -> Value {
    let mut body = Map::new();
    for name in ["title", "reconstruction_method", "camera_type"] {
        if !form.text(name).trim().is_empty() {
            body.insert(name.to_owned(), form.text(name).into());
        }
    }
    for name in ["training_num_steps", "training_max_num_gaussians", "apriltag_size_mm"] {
        let text = form.text(name).trim();
        // What is no number stays a text, which the rules refuse by the name of the field.
        let number = serde_json::from_str(text).ok().filter(Value::is_number);
        if !text.is_empty() {
            body.insert(name.to_owned(), number.unwrap_or_else(|| text.into()));
        }
    }
    if !form.text("remove_background").is_empty() {
        body.insert("remove_background".to_owned(), (form.text("remove_background") == "true").into());
    }
    Value::Object(body)
}

#[cfg(test)]
mod tests {
    use libreconstruct::job::{BlobName, VideoExtension};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_becomes_the_body_of_a_request() {
        let read = |text: &str| read(&Form::of(text.as_bytes()));
        assert_eq!(read(""), json!({}));
        assert_eq!(read("title=+&apriltag_size_mm=&other=1"), json!({}));
        let body = read(
            "title=A+garden&training_num_steps=700&apriltag_size_mm=12.5&remove_background=false&remove_background=true\
             &camera_type=orbital",
        );
        let expected = json!({
            "title": "A garden", "training_num_steps": 700, "apriltag_size_mm": 12.5, "remove_background": true,
            "camera_type": "orbital",
        });
        assert_eq!(body, expected);
        assert_eq!(read("remove_background=false"), json!({"remove_background": false}));
        assert_eq!(read("training_num_steps=many"), json!({"training_num_steps": "many"}));
    }

    #[test]
    fn the_fields_are_those_of_a_request_and_have_its_values() {
        let request = JobRequest {
            training_num_steps: 123,
            apriltag_size_mm: Some(4.5),
            remove_background: true,
            camera_type: Some(CameraType::Orbital),
            reconstruction_method: ReconstructionMethod::Colmap,
            ..JobRequest::new(BlobName::random(VideoExtension::Mp4))
        };
        let markup = fields(&request, &Limits::default()).into_string();
        for part in [
            "value=\"123\"",
            "value=\"4.5\"",
            " checked ",
            "value=\"colmap\" selected",
            "value=\"orbital\" selected",
        ] {
            assert!(markup.contains(part), "{part}: {markup}");
        }
        // What is labelled is there, and what is described has its words.
        for part in markup.split("for=\"").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(
                markup.contains(&format!("id=\"{name}\" name=\"{name}\"")) || name == "remove_background",
                "{name}"
            );
        }
    }
}
