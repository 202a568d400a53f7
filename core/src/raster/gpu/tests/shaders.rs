//! Every shader, without a device.

use wgpu::naga;

use crate::raster::gpu::kernels::sources;

#[test]
fn every_shader_is_valid_and_within_the_default_limits() {
    let (portable, with_warps) = sources();
    let nothing_optional = naga::valid::Capabilities::empty(); // no subgroups, no float atomics
    let all = portable.into_iter().map(|s| (s, nothing_optional));
    let subgroups = naga::valid::Capabilities::SUBGROUP;
    for ((entry, source), capabilities) in all.chain(with_warps.into_iter().map(|s| (s, subgroups))) {
        let module = naga::front::wgsl::parse_str(&source)
            .unwrap_or_else(|error| panic!("{entry}: {}", error.emit_to_string(&source)));
        let info = naga::valid::Validator::new(naga::valid::ValidationFlags::all(), capabilities)
            .validate(&module)
            .unwrap_or_else(|error| panic!("{entry}: {}", error.emit_to_string(&source)));
        let index = module.entry_points.iter().position(|e| e.name == entry).expect(entry);
        let [x, y, z] = module.entry_points[index].workgroup_size;
        assert!(x * y * z <= 256, "{entry}");
        let mut layouter = naga::proc::Layouter::default();
        layouter.update(module.to_ctx()).unwrap();
        let (mut memory, mut buffers) = (0, 0);
        for (handle, variable) in module.global_variables.iter() {
            if info.get_entry_point(index)[handle].is_empty() {
                continue;
            }
            match variable.space {
                naga::AddressSpace::WorkGroup => memory += layouter[variable.ty].size,
                naga::AddressSpace::Storage { .. } => buffers += 1,
                _ => {}
            }
        }
        println!("{entry}: {memory} B of workgroup memory, {buffers} storage buffers");
        assert!(memory <= 16 << 10, "{entry} needs {memory} B of workgroup memory");
        assert!(buffers <= 8, "{entry} binds {buffers} storage buffers");
    }
}
