// Shows a scene from all sides: splat_view SCENE FOLDER [PICTURES]
//
// Loads a .ply or .spz file and writes a turntable around its middle as PNG pictures.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <vector>

#include <reconstruct.hpp>

// The middle value along one axis: it does not mind splats far away.
static double median(const reconstruct::Span<float>& means, std::size_t axis) {
    std::vector<float> values;
    for (std::size_t i = axis; i < means.size(); i += 3) values.push_back(means[i]);
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

int main(int argc, char** argv) {
    if (argc < 3) {
        std::cerr << "usage: " << argv[0] << " SCENE FOLDER [PICTURES]\n";
        return 2;
    }
    try {
        const int count = argc > 3 ? std::stoi(argv[3]) : 36;
        const reconstruct::Scene scene = reconstruct::Scene::load(argv[1]);
        if (scene.size() == 0) throw std::runtime_error("the scene is empty");
        const auto means = scene.means();
        const double target[3] = {median(means, 0), median(means, 1), median(means, 2)};

        // Far enough to see most of it.
        std::vector<double> distances;
        for (std::size_t i = 0; i < means.size(); i += 3)
            distances.push_back(std::hypot(means[i] - target[0], means[i + 1] - target[1], means[i + 2] - target[2]));
        const auto far = distances.begin() + static_cast<std::ptrdiff_t>(distances.size() * 8 / 10);
        std::nth_element(distances.begin(), far, distances.end());
        const double radius = 2.5 * *far;

        std::filesystem::create_directories(argv[2]);
        const reconstruct::Renderer renderer(scene);
        const double up[3] = {0.0, -1.0, 0.0}; // y points down
        for (int i = 0; i < count; ++i) {
            const double angle = 2.0 * 3.14159265358979323846 * i / count;
            const double position[3] = {target[0] + radius * std::sin(angle), target[1] - 0.3 * radius,
                                        target[2] - radius * std::cos(angle)};
            const auto view = reconstruct::View::look_at(position, target, up, 45.0, 640, 480);
            char name[32];
            std::snprintf(name, sizeof name, "view_%03d.png", i);
            renderer.render(view).write_png((std::filesystem::path(argv[2]) / name).string());
        }
        std::cout << count << " pictures of " << scene.size() << " splats in " << argv[2] << ", rendered on "
                  << renderer.device() << '\n';
    } catch (const std::exception& error) {
        std::cerr << "error: " << error.what() << '\n';
        return 1;
    }
}
