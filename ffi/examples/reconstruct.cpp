// Makes a scene of a video through the queue of an engine: reconstruct_cpp FOLDER VIDEO OUT.ply [STEPS]
//
// Draws a progress bar. The job stays in FOLDER: if this program is killed, it goes on with the next one that has a
// worker there.
#include <cstdlib>
#include <iostream>
#include <string>

#include <reconstruct.hpp>

static void draw(const reconstruct::JobInfo& info) {
    static const char* const stages[] = {"waiting", "frames", "cameras", "training", "writing"};
    const int width = 40;
    const float done = info.status == RC_JOB_FINISHED ? 1.0f : info.stage_fraction;
    const int filled = static_cast<int>(static_cast<float>(width) * done);
    std::cout << '\r' << std::string(static_cast<std::size_t>(filled), '#')
              << std::string(static_cast<std::size_t>(width - filled), '.') << ' '
              << (info.status == RC_JOB_FINISHED ? "done" : stages[info.stage]) << "      " << std::flush;
}

int main(int argc, char** argv) {
    if (argc < 4) {
        std::cerr << "usage: " << argv[0] << " FOLDER VIDEO OUT.ply [STEPS]\n";
        return 2;
    }
    try {
        reconstruct::EngineOptions options;
        options.workers = 1;
        options.settings_json = R"({"reconstruction": {"max_frames": 100, "training_max_resolution": 480}})";
        reconstruct::Engine engine(argv[1], options);

        reconstruct::Request request;
        request.training_max_num_gaussians = 50'000;
        request.training_num_steps = argc > 4 ? static_cast<std::uint32_t>(std::stoul(argv[4])) : 2'000;
        reconstruct::Job job = engine.submit(argv[2], request);
        std::cout << "job " << job.id() << '\n';

        const reconstruct::JobInfo info = job.wait([](const reconstruct::JobInfo& now) {
            draw(now);
            return true; // go on
        });
        std::cout << '\n';
        if (info.status != RC_JOB_FINISHED) {
            throw *job.failure();
        }
        job.download(RC_ARTIFACT_PLY, argv[3]);
        std::cout << "the scene is in " << argv[3] << '\n';
    } catch (const std::exception& error) {
        std::cerr << "error: " << error.what() << '\n';
        return 1;
    }
}
