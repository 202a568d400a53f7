//! The wgpu implementation: Vulkan, Metal, DX12.
