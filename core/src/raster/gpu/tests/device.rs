//! Finding a device, and what is said when there is none.

use crate::error::ErrorKind;
use crate::prerequisites::Prerequisite;
use crate::raster::gpu::device::Gpu;
use crate::raster::gpu::gradient_buffers::SlotBuffer;
use crate::raster::gpu::view_buffers::IntersectionBuffers;
use crate::raster::{DeviceChoice, adapters};

#[test]
fn a_device_that_is_not_there_is_named_with_those_that_are() {
    let choice = DeviceChoice::Adapter("no such adapter".to_owned());
    let error = Gpu::open(&choice).err().unwrap();
    println!("{error}");
    assert_eq!(error.kind(), ErrorKind::NoGpu);
    assert!(error.message().contains("no such adapter"));
    for adapter in adapters() {
        println!("{adapter:?}");
        assert!(error.message().contains(&adapter.name));
    }
    assert!(error.hint_text().unwrap().contains("apt-get install"));
    assert_eq!(Gpu::open(&DeviceChoice::Cpu).err().unwrap().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn auto_never_takes_a_driver_that_computes_on_the_cpu() {
    match Gpu::open(&DeviceChoice::Auto) {
        Ok(gpu) => {
            let name = gpu.to_string();
            let found = adapters().into_iter().find(|a| name.contains(&a.name)).unwrap();
            assert!(found.usable && found.kind != "cpu", "{found:?}");
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NoGpu);
            assert!(adapters().iter().all(|a| !a.usable || a.kind == "cpu"));
        }
    }
}

#[test]
fn a_buffer_beyond_the_limit_is_refused_with_the_limit() {
    let gpu = match Gpu::open(&DeviceChoice::Gpu) {
        Ok(gpu) => gpu,
        Err(error) if error.kind() == ErrorKind::NoGpu => {
            return Prerequisite::Gpu.is_missing("a device for wgpu");
        }
        Err(error) => panic!("{error}"),
    };
    println!("{gpu}: buffers of {} MiB can be bound", gpu.max_binding >> 20);
    let error = gpu.buffer("things", gpu.max_binding + 1).err().unwrap();
    println!("{error}");
    assert_eq!(error.kind(), ErrorKind::Gpu);
    assert!(error.message().contains("max_storage_buffer_binding_size"));
    assert!(SlotBuffer::limit(&gpu) >= 1 << 20 && IntersectionBuffers::limit(&gpu) >= 1 << 22);
    // A fault that the driver reports out of line comes out of the next check, once and for all.
    let invalid = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::STORAGE;
    gpu.check().unwrap();
    assert_eq!(gpu.buffer_for("things", 16, invalid).err().unwrap().kind(), ErrorKind::Gpu);
    assert_eq!(gpu.check().err().unwrap().kind(), ErrorKind::Gpu);
}
