// A real reconstruction from C++, with progress, previews, warnings and cancel: real FOLDER VIDEO
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <reconstruct.hpp>

namespace fs = std::filesystem;

static void check(bool condition, const std::string& what) {
    if (!condition) {
        std::cerr << "failed: " << what << '\n';
        std::exit(1);
    }
}

template <typename Function> static rc_code code_of(Function function) {
    try {
        function();
    } catch (const reconstruct::Error& error) {
        check(!error.message().empty() && !error.slug().empty(), "an error says something");
        return error.code();
    }
    return RC_OK;
}

static reconstruct::Reconstruction quick() {
    reconstruct::Reconstruction options;
    options.max_frames = 12;
    options.max_resolution = 240;
    options.training_max_resolution = 160;
    options.sh_degree = 1;
    options.training_max_num_gaussians = 1000;
    options.training_num_steps = 300;
    options.turntable = false;
    options.device = "cpu";
    return options;
}

// Cancelled from its callback, from another thread and by an exception, each time later; then it goes on to its end. What
// cancels one call only leaves the flag as it was that was given beside.
static void without_jobs(const std::string& folder, const std::string& video) {
    enum class By { callback, thread, exception };
    const auto here = std::this_thread::get_id();
    auto until = [&](rc_stage stage, By by, const reconstruct::CancelToken& cancel) {
        return code_of([&] {
            reconstruct::run(video, folder, quick(), [&](const reconstruct::Event& event) {
                check(std::this_thread::get_id() == here, "events come on the caller's thread");
                if (event.stage < stage) return true;
                if (by == By::exception) throw 7;
                if (by == By::callback) return false;
                std::thread([&] { cancel.raise(); }).join();
                return true;
            }, &cancel);
        });
    };
    const reconstruct::CancelToken shared, token;
    check(until(RC_STAGE_FRAMES, By::callback, shared) == RC_CANCELLED, "a callback cancels");
    check(!shared.is_raised(), "a callback raises no flag");
    check(until(RC_STAGE_SFM, By::thread, token) == RC_CANCELLED, "another thread cancels");
    check(token.is_raised(), "a flag stays raised");
    check(!fs::exists(fs::path(folder) / "scene.ply"), "nothing is half done");
    try {
        until(RC_STAGE_TRAIN, By::exception, shared);
        check(false, "an exception comes through");
    } catch (int number) {
        check(number == 7, "the exception is the one that was thrown");
    }
    check(!shared.is_raised(), "an exception raises no flag");

    std::set<int> stages;
    float furthest = 0.0f;
    int previews = 0;
    bool taken_over = false;
    const std::string report = reconstruct::run(video, folder, quick(), [&](const reconstruct::Event& event) {
        if (event.kind == RC_EVENT_PROGRESS) {
            stages.insert(event.stage);
            taken_over = taken_over || (event.stage == RC_STAGE_FRAMES && event.message &&
                                        std::string(event.message) == "taken over");
            if (event.total_fraction >= 0.0f) {
                check(event.total_fraction >= furthest - 1e-6f && event.total_fraction <= 1.0f, "progress never goes back");
                furthest = event.total_fraction;
            }
        } else if (event.kind == RC_EVENT_PREVIEW) {
            ++previews;
            const rc_picture& picture = event.preview;
            const std::size_t bytes = 4 * std::size_t{picture.width} * picture.height;
            check(bytes > 0, "a preview has a size");
            bool seen = false;
            for (std::size_t i = 0; i < bytes; i += 4) {
                check(picture.rgba[i + 3] == 255, "a preview is opaque");
                seen = seen || picture.rgba[i] != picture.rgba[0];
            }
            check(seen, "a preview shows something");
        }
        return true;
    }, &shared);
    check(taken_over, "what was finished is not done again");
    check(stages == std::set<int>{RC_STAGE_FRAMES, RC_STAGE_SFM, RC_STAGE_TRAIN, RC_STAGE_EXPORT}, "every stage tells");
    check(furthest > 0.9f && previews > 0, "it tells how far it is and shows it");
    check(report.find("\"splats\"") != std::string::npos, "the report has figures");
    for (const char* name : {"scene.ply", "scene.spz", "preview.jpg", "camera.json", "report.json"})
        check(fs::file_size(fs::path(folder) / name) > 0, name);

    reconstruct::Reconstruction wrong = quick();
    wrong.focal = -1.0;
    check(code_of([&] { reconstruct::run(video, folder, wrong); }) == RC_INVALID_ARGUMENT, "options have their ranges");
}

// The stages before the training, one by one; `run` is the folder of a reconstruction of the same video.
static void stages(const std::string& run, const std::string& folder, const std::string& video) {
    const auto at = [&](const char* name) { return (fs::path(folder) / name).string(); };
    reconstruct::FrameOptions few;
    few.max_frames = 12;
    few.max_resolution = 240;
    int events = 0;
    const std::string frames = reconstruct::extract_frames(video, at("frames"), few, [&](const reconstruct::Event& event) {
        check(event.stage == RC_STAGE_FRAMES, "frames are the first stage");
        ++events;
        return true;
    });
    check(events > 0 && frames.find("frame_") != std::string::npos, "frames tell of themselves");

    const reconstruct::Model model = reconstruct::sfm(at("frames"), at("poses"));
    check(model.size() > 8 && model.report_json().find("\"verdict\"") != std::string::npos, "a model has its report");
    check(model.components().empty(), "there is one place");
    for (const char* name : {"poses/sparse/images.bin", "poses/undistorted/sparse/images.bin", "poses/poses.jpg"})
        check(fs::file_size(at(name)) > 0, name);

    // In memory it is the same, and the same as in the whole run.
    reconstruct::Model again = reconstruct::sfm(at("frames"));
    const reconstruct::Model of_run = reconstruct::Model::load((fs::path(run) / "sparse").string());
    const rc_model_arrays a = model.arrays();
    for (const reconstruct::Model* other : {&std::as_const(again), &of_run}) {
        const rc_model_arrays b = other->arrays();
        check(a.image_count == b.image_count && a.point_count == b.point_count && a.point_count > 100, "same sizes");
        check(std::equal(a.image_poses, a.image_poses + 12 * a.image_count, b.image_poses), "same poses");
        check(std::equal(a.points, a.points + 3 * a.point_count, b.points), "same points");
        check(std::equal(a.camera_params, a.camera_params + 8 * a.camera_count, b.camera_params), "same lens");
    }
    check(of_run.report_json().empty(), "files have no report");
    check(a.camera_count == 1 && a.camera_sizes[0] == 240 && std::string(a.camera_models[0]).find("RADIAL") == 7, "one lens");
    check(a.image_camera_ids[0] == a.camera_ids[0] && a.camera_params[7] == 0.0, "which all images share");
    check(std::string(a.image_names[0]).find("frame_") == 0 && a.track_lengths[0] >= 2 && a.errors[0] < 10.0, "rows agree");
    for (std::size_t i = 0; i < a.image_count; ++i) {
        const double* row = a.image_poses + 12 * i;
        check(std::abs(row[0] * row[0] + row[1] * row[1] + row[2] * row[2] - 1.0) < 1e-9, "rotations are rotations");
    }

    model.save(at("text"), true);
    const auto read = reconstruct::Model::load(at("text"));
    check(read.size() == model.size() && fs::exists(at("text/cameras.txt")), "it can be written as text");
    model.plot(at("plot.jpg"));
    check(fs::file_size(at("plot.jpg")) > 1000, "and drawn");
    const auto pinhole = read.undistort(at("frames"), at("undistorted"));
    check(std::string(pinhole.arrays().camera_models[0]) == "PINHOLE" && pinhole.size() == model.size(), "and undistorted");
    check(fs::exists(at("undistorted/images")), "with its pictures");
    // What is thrown of the last event comes when the model may be there already; the sanitizer sees whether it is let go of.
    int told = 0, last = 0;
    read.undistort(at("frames"), at("again"), 0, [&](const reconstruct::Event&) { return ++last > 0; });
    try {
        read.undistort(at("frames"), at("thrown"), 0, [&](const reconstruct::Event&) {
            if (++told >= last) throw 7;
            return true;
        });
    } catch (int) {
    }

    check(code_of([&] { reconstruct::sfm(at("none")); }) == RC_NOT_FOUND, "a video must be there");
    check(code_of([&] { reconstruct::Model::load(at("frames")); }) == RC_NOT_FOUND, "and so must a model");
    reconstruct::SfmOptions wrong;
    wrong.rolling_shutter_ms = 1000.0;
    check(code_of([&] { reconstruct::sfm(at("frames"), {}, wrong); }) == RC_INVALID_ARGUMENT, "options have their ranges");
    wrong = {};
    wrong.mask_dir = at("frames");
    check(code_of([&] { reconstruct::sfm(at("frames"), {}, wrong); }) == RC_INVALID_ARGUMENT, "masks need a folder");
    const auto stop = [](const reconstruct::Event&) { return false; };
    check(code_of([&] { reconstruct::sfm(at("frames"), {}, {}, stop); }) == RC_CANCELLED, "a callback cancels");
    auto moved = std::move(again);
    check(again.size() == 0 && code_of([&] { again.arrays(); }) == RC_NULL_ARGUMENT, "what was moved from is empty");
}

static void scenes(const std::string& folder) {
    const std::string ply = folder + "/scene.ply", copy = folder + "/copy.spz";
    const auto scene = reconstruct::Scene::load(ply);
    check(scene.size() > 100 && scene.means().size() == 3 * scene.size() && scene.sh().size() == 12 * scene.size(),
          "the arrays have the splats");
    check(scene.means().data() == scene.splats().means, "nothing is copied");
    scene.save(copy);
    const auto packed = reconstruct::Scene::load(copy);
    check(packed.size() == scene.size(), "an .spz has the same splats");
    for (std::size_t i = 0; i < scene.means().size(); ++i)
        check(std::abs(scene.means()[i] - packed.means()[i]) < 1e-3f, "in the same places");
    auto again = reconstruct::Scene::from(scene.splats());
    auto moved = std::move(again);
    check(moved.size() == scene.size() && again.size() == 0, "a handle can be moved");
    check(code_of([&] { again.save(copy); }) == RC_NULL_ARGUMENT, "and is then empty");

    const reconstruct::Renderer renderer(scene, "cpu");
    const double position[3] = {0.0, 0.0, 0.0}, target[3] = {0.0, 0.0, 1.0}, up[3] = {0.0, -1.0, 0.0};
    auto view = reconstruct::View::look_at(position, target, up, 60.0, 160, 120);
    const auto picture = renderer.render(view);
    check(picture.rgba.size() == 4 * 160 * 120, "a picture has its size");
    picture.write_png(folder + "/view.png");
    check(fs::file_size(folder + "/view.png") > 100, "and can be written");
    check(code_of([&] { renderer.render(view, nullptr, 4 * 160 * 120); }) == RC_NULL_ARGUMENT, "it needs a place");
    check(code_of([&] { renderer.render(view, nullptr, 0); }) == RC_INVALID_ARGUMENT, "of its size");
    view.width = 0;
    check(code_of([&] { renderer.render(view); }) == RC_INVALID_ARGUMENT, "a view has pixels");
    view = reconstruct::View::look_at(position, target, up, 60.0, 160, 120);
    view.rotation[0] = 2.0;
    check(code_of([&] { renderer.render(view); }) == RC_INVALID_ARGUMENT, "a rotation is one");
    check(code_of([&] { reconstruct::View::look_at(position, position, up, 60.0, 8, 8); }) == RC_INVALID_ARGUMENT,
          "a view has a direction");
}

// The same through the queue, with a worker of this program and one on a thread of its own.
static void with_jobs(const std::string& folder, const std::string& video) {
    reconstruct::EngineOptions options;
    options.settings_json = R"({"reconstruction": {"device": "cpu", "max_frames": 12, "max_resolution": 240,
                                "training_max_resolution": 160, "sh_degree": 0}})";
    const reconstruct::Engine engine(folder, options);
    reconstruct::Request request;
    request.title = "Garden";
    request.training_max_num_gaussians = 1000;
    request.training_num_steps = 20;
    request.idempotency_key = "once";
    try {
        engine.submit(video, request);
        check(false, "a file is copied anew, and cannot be submitted once for all");
    } catch (const std::invalid_argument&) {
    }
    reconstruct::Request wrong;
    wrong.training_num_steps = 200'001;
    check(code_of([&] { engine.submit(video, wrong); }) == RC_INVALID_ARGUMENT, "a request has limits");
    check(fs::is_empty(folder + "/videos"), "what could not be submitted leaves no copy");
    engine.discard_upload(engine.import_video(video));
    check(fs::is_empty(folder + "/videos"), "nor does what is not wanted");
    const std::string blob = engine.import_video(video);
    check(code_of([&] { engine.discard_upload("videos/none"); }) == RC_INVALID_ARGUMENT, "a video has a name");
    const auto job = engine.submit_video(blob, request);
    check(engine.submit_video(blob, request).id() == job.id(), "under its key a submission is repeated");
    check(code_of([&] { engine.discard_upload(blob); }) == RC_CONFLICT, "a job keeps its video");
    request.idempotency_key.reset();
    check(job.info().status == RC_JOB_QUEUED && job.info().queue_position == 1, "a job waits");

    const reconstruct::CancelToken stop;
    std::thread worker([&] { engine.run_worker(stop); });
    std::set<int> seen;
    const auto info = job.wait([&](const reconstruct::JobInfo& now) {
        seen.insert(now.status);
        return true;
    }, 300.0);
    stop.raise();
    worker.join();
    check(info.status == RC_JOB_FINISHED && info.percent_complete == 100 && info.has_ply && info.has_spz, "it finishes");
    check(seen.count(RC_JOB_FINISHED) == 1 && seen.size() >= 2, "its states are told");
    check(!job.failure(), "it has no failure");
    check(job.title() == "Garden" && job.json().find("\"Finished\"") != std::string::npos, "it can be shown");
    check(!job.log().empty(), "it has a log");

    const auto ply = job.artifact(RC_ARTIFACT_PLY);
    check(ply.file_name() == "Garden.ply" && ply.size() > 1000, "its scene can be fetched");
    const auto bytes = ply.bytes();
    check(bytes.size() == ply.size() && bytes[0] == 'p' && bytes[1] == 'l' && bytes[2] == 'y', "whole");
    std::uint8_t tail[16];
    check(ply.read(ply.size() - 8, tail, sizeof tail) == 8 && tail[7] == bytes.back(), "and from any place");
    check(ply.read(ply.size() + 8, tail, sizeof tail) == 0, "to its end");
    job.download(RC_ARTIFACT_SPZ, folder + "/garden.spz");
    check(reconstruct::Scene::load(folder + "/garden.spz").size() > 10, "as .spz too");

    reconstruct::JobChanges changes;
    changes.camera = info.camera;
    changes.camera->position[0] = 42.0;
    changes.is_public = true;
    job.update(changes);
    check(job.info().camera.position[0] == 42.0 && job.info().is_public, "it can be changed");
    changes = {};
    changes.reset_camera = true;
    job.update(changes);
    check(job.info().camera.position[0] == info.camera.position[0] && job.info().is_public, "and back");
    check(code_of([&] { job.cancel(); }) == RC_CONFLICT, "what is finished cannot be cancelled");

    const auto other = engine.for_user("eve");
    check(code_of([&] { other.job(job.id()); }) == RC_NOT_FOUND, "others do not see it");
    check(engine.jobs().jobs.size() == 1 && other.jobs().jobs.empty(), "lists are of one user");

    // An engine that goes stops its worker: the job, which would take hours, waits for another one.
    engine.start_workers(1);
    request.training_num_steps = 200'000;
    const auto endless = engine.submit(video, request);
    endless.wait([](const reconstruct::JobInfo& now) { return now.status != RC_JOB_GENERATING_SCENE; }, 300.0);
}

int main(int argc, char** argv) {
    check(argc == 3, "usage: real FOLDER VIDEO");
    const std::string folder = argv[1], video = argv[2];
    try {
        without_jobs(folder + "/scene", video);
        stages(folder + "/scene", folder + "/stages", video);
        scenes(folder + "/scene");
        try {
            with_jobs(folder + "/engine", video);
            check(false, "the endless job is not waited for to its end");
        } catch (const reconstruct::Error& error) {
            // The engine is gone by now: its worker stopped at once though the job was not done.
            check(error.code() == RC_CANCELLED, std::string("waiting was stopped, not: ") + error.what());
        }
    } catch (const std::exception& error) {
        std::cerr << "error: " << error.what() << '\n';
        return 1;
    }
    std::cout << "all is well\n";
}
