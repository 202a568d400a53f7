//! Finds a graphics adapter and opens it; every way in which that or the device itself fails becomes an [`Error`].

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, ErrorKind, Result};
use crate::raster::device::{AdapterInfo, DeviceChoice};

/// What the shaders are written for; everything that WebGPU calls its default limits, and so every adapter, has it.
const WORKGROUP_THREADS: u32 = 256;
const WORKGROUP_BYTES: u32 = 16 << 10;
const STORAGE_BUFFERS: u32 = 8;

/// An open device with its queue. Errors that the driver reports out of line are kept until [`Gpu::check`].
pub(super) struct Gpu {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    /// Largest buffer that can be bound whole, bytes.
    pub(super) max_binding: u64,
    /// Bytes of the device's own memory, where the driver tells; on a device that shares the machine's, a part of that.
    pub(super) memory: Option<u64>,
    /// Whether the device runs 32 threads together and lets them pass values to each other.
    pub(super) has_warps: bool,
    name: String,
    backend: wgpu::Backend,
    fault: Arc<Mutex<Option<String>>>,
}

/// The graphics adapters of this machine, the one that `auto` would take first.
pub fn adapters() -> Vec<AdapterInfo> {
    sorted_adapters().iter().map(describe).collect()
}

fn instance() -> wgpu::Instance {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::PRIMARY);
    // Indirect counts come from our own shaders, which bound them.
    descriptor.flags.remove(wgpu::InstanceFlags::VALIDATION_INDIRECT_CALL);
    wgpu::Instance::new(descriptor)
}

fn sorted_adapters() -> Vec<wgpu::Adapter> {
    let backends = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::PRIMARY);
    let mut adapters = pollster::block_on(instance().enumerate_adapters(backends));
    adapters.sort_by_key(|adapter| rank(adapter.get_info().device_type)); // stable: the driver's order within a kind
    adapters
}

fn rank(kind: wgpu::DeviceType) -> u32 {
    match kind {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

fn describe(adapter: &wgpu::Adapter) -> AdapterInfo {
    let info = adapter.get_info();
    let missing = missing(adapter);
    let software = info.device_type == wgpu::DeviceType::Cpu;
    AdapterInfo {
        name: info.name,
        backend: format!("{:?}", info.backend),
        kind: match info.device_type {
            wgpu::DeviceType::DiscreteGpu => "discrete",
            wgpu::DeviceType::IntegratedGpu => "integrated",
            wgpu::DeviceType::VirtualGpu => "virtual",
            wgpu::DeviceType::Cpu => "cpu",
            wgpu::DeviceType::Other => "other",
        }
        .to_owned(),
        usable: missing.is_none(),
        reason: missing.or_else(|| {
            software.then(|| "computes on the CPU: `auto` takes the CPU implementation instead".to_owned())
        }),
    }
}

/// Bytes of the largest heap of the device's own memory. Only Vulkan tells.
fn memory(adapter: &wgpu::Adapter) -> Option<u64> {
    // VK_MEMORY_HEAP_DEVICE_LOCAL_BIT
    const DEVICE_LOCAL: u32 = 1;
    // SAFETY: the adapter is only looked at; nothing of it is destroyed or kept.
    let vulkan = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let (instance, device) = (vulkan.shared_instance().raw_instance(), vulkan.raw_physical_device());
    // SAFETY: the physical device is one of this instance, and both live as long as the adapter.
    let properties = unsafe { instance.get_physical_device_memory_properties(device) };
    let heaps = properties.memory_heaps_as_slice();
    heaps.iter().filter(|heap| heap.flags.as_raw() & DEVICE_LOCAL != 0).map(|heap| heap.size).max()
}

/// What the adapter lacks that the shaders need.
fn missing(adapter: &wgpu::Adapter) -> Option<String> {
    let limits = adapter.limits();
    let lacks = |what: &str, has: u32, needs: u32| {
        (has < needs).then(|| format!("{what} is {has}, {needs} are needed"))
    };
    lacks(
        "max_compute_invocations_per_workgroup",
        limits.max_compute_invocations_per_workgroup,
        WORKGROUP_THREADS,
    )
    .or_else(|| {
        lacks(
            "max_compute_workgroup_storage_size",
            limits.max_compute_workgroup_storage_size,
            WORKGROUP_BYTES,
        )
    })
    .or_else(|| {
        lacks(
            "max_storage_buffers_per_shader_stage",
            limits.max_storage_buffers_per_shader_stage,
            STORAGE_BUFFERS,
        )
    })
    .or_else(|| {
        let flags = adapter.get_downlevel_capabilities().flags;
        let needed = wgpu::DownlevelFlags::COMPUTE_SHADERS | wgpu::DownlevelFlags::INDIRECT_EXECUTION;
        (!flags.contains(needed)).then(|| "no indirect compute dispatch".to_owned())
    })
}

impl Gpu {
    /// Opens the adapter that `choice` asks for.
    ///
    /// # Errors
    /// [`ErrorKind::NoGpu`] if there is none (the message lists what was seen), [`ErrorKind::Gpu`] if it cannot be
    /// opened, [`ErrorKind::InvalidArgument`] for [`DeviceChoice::Cpu`].
    pub(super) fn open(choice: &DeviceChoice) -> Result<Self> {
        let wanted: Box<dyn Fn(&wgpu::Adapter) -> bool> = match choice {
            DeviceChoice::Cpu => {
                return Err(Error::argument("the CPU implementation needs no graphics device"));
            }
            DeviceChoice::Auto => Box::new(|adapter| adapter.get_info().device_type != wgpu::DeviceType::Cpu),
            DeviceChoice::Gpu => Box::new(|_| true),
            DeviceChoice::Adapter(name) => {
                let name = name.to_lowercase();
                Box::new(move |adapter| adapter.get_info().name.to_lowercase().contains(&name))
            }
        };
        let adapters = sorted_adapters();
        let Some(adapter) = adapters.iter().find(|adapter| wanted(adapter) && missing(adapter).is_none())
        else {
            return Err(none_found(choice, &adapters));
        };
        Self::open_adapter(adapter)
    }

    fn open_adapter(adapter: &wgpu::Adapter) -> Result<Self> {
        let info = adapter.get_info();
        let limits = adapter.limits();
        // Time stamps are for benchmarks. What the adapter has of these; training does without.
        let features = adapter.features() & (wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::SUBGROUP);
        let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some("libreconstruct"),
            required_features: features,
            required_limits: limits.clone(),
            memory_hints: wgpu::MemoryHints::Performance,
            ..Default::default()
        }))
        .map_err(|error| {
            Error::new(ErrorKind::Gpu, format!("cannot open the graphics device {}: {error}", info.name))
                .hint("another program may hold all of its memory; try again, or use the device `cpu`")
        })?;
        let fault = Arc::new(Mutex::new(None));
        let keep = |fault: &Arc<Mutex<Option<String>>>, text: String| {
            // The first fault is the cause; what follows from it says less.
            fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
        };
        let slot = Arc::clone(&fault);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| keep(&slot, error.to_string())));
        let slot = Arc::clone(&fault);
        device.set_device_lost_callback(move |reason, message| {
            if reason != wgpu::DeviceLostReason::Destroyed {
                keep(&slot, format!("the device was lost: {message}"));
            }
        });
        Ok(Self {
            device,
            queue,
            max_binding: limits.max_storage_buffer_binding_size.min(limits.max_buffer_size),
            memory: memory(adapter),
            has_warps: features.contains(wgpu::Features::SUBGROUP)
                && (info.subgroup_min_size, info.subgroup_max_size) == (32, 32),
            name: info.name,
            backend: info.backend,
            fault,
        })
    }

    /// # Errors
    /// [`ErrorKind::Gpu`] if the driver has reported a fault since the device was opened.
    pub(super) fn check(&self) -> Result<()> {
        let fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        match fault.as_deref() {
            None => Ok(()),
            Some(text) => Err(Error::new(ErrorKind::Gpu, format!("the graphics device {self} failed: {text}"))
                .hint("run the same command again: it continues; if it fails again, lower the quality or use the device `cpu`")),
        }
    }

    /// The driver's name of the adapter.
    #[cfg(feature = "service")]
    pub(super) fn adapter(&self) -> &str {
        &self.name
    }

    /// A fault that the host itself has noticed.
    pub(super) fn failed(&self, doing: &str, error: impl fmt::Display) -> Error {
        // What the driver has reported is the cause of it.
        self.check().err().unwrap_or_else(|| {
            Error::new(ErrorKind::Gpu, format!("cannot {doing} on the graphics device {self}: {error}"))
        })
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}", self.name, self.backend)
    }
}

fn none_found(choice: &DeviceChoice, adapters: &[wgpu::Adapter]) -> Error {
    let seen: Vec<String> = adapters
        .iter()
        .map(describe)
        .map(|a| match a.reason {
            Some(reason) => format!("{} ({}, {}: {reason})", a.name, a.backend, a.kind),
            None => format!("{} ({}, {})", a.name, a.backend, a.kind),
        })
        .collect();
    let seen = if seen.is_empty() { "none at all".to_owned() } else { seen.join("; ") };
    Error::new(ErrorKind::NoGpu, format!("no graphics adapter fits the choice `{choice}`; this machine has: {seen}"))
        .hint(
            "install the driver (NVIDIA: apt-get install nvidia-driver libnvidia-gl; AMD, Intel and software: apt-get \
             install mesa-vulkan-drivers), or use the device `cpu`",
        )
}
