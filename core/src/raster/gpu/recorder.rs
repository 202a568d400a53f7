//! Records dispatches and copies into one command buffer, submits it, and reads buffers back.

use std::collections::HashMap;
use std::sync::mpsc;

use super::device::Gpu;
use super::kernels::{FOLD, Kernel};
use super::profiler::Profiler;
use crate::error::{Error, ErrorKind, Result};

/// Largest piece in which buffers are read back, bytes.
const READ_CHUNK: u64 = 64 << 20;

/// How many workgroups.
#[derive(Debug, Clone, Copy)]
pub(super) enum Groups<'a> {
    /// So many, numbered along x first ([`FOLD`] in a row).
    Linear(u32),
    /// Two dimensions.
    Grid(u32, u32),
    /// As many as the n-th triple of this buffer says.
    Indirect(&'a wgpu::Buffer, u64),
}

/// A pass and the buffers that it is run on.
type BindGroupKey = (&'static str, Vec<wgpu::Buffer>);

/// The command buffer under construction.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    encoder: Option<wgpu::CommandEncoder>,
    /// Dispatches go into one pass of the encoder until something else is recorded: beginning one for each costs the
    /// host more than the dispatch. wgpu orders the dispatches of a pass by the buffers that they use all the same.
    pass: Option<wgpu::ComputePass<'static>>,
    bind_groups: HashMap<BindGroupKey, wgpu::BindGroup>,
    /// Times the passes, if asked to.
    pub(super) profiler: Option<Profiler>,
}

impl Recorder {
    /// The encoder, to record copies.
    pub(super) fn encoder(&mut self, gpu: &Gpu) -> &mut wgpu::CommandEncoder {
        self.pass = None;
        self.encoder.get_or_insert_with(|| gpu.device.create_command_encoder(&Default::default()))
    }

    /// Records one pass. `buffers` are those that the entry point uses, in the order of their bindings.
    pub(super) fn dispatch(
        &mut self,
        gpu: &Gpu,
        kernel: &Kernel,
        buffers: &[&wgpu::Buffer],
        groups: Groups<'_>,
    ) {
        let key = (kernel.name, buffers.iter().copied().cloned().collect());
        let bind_group = self.bind_groups.entry(key).or_insert_with(|| {
            let resources = buffers.iter().map(|buffer| buffer.as_entire_binding());
            let entries: Vec<_> = (0..)
                .zip(resources)
                .map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource })
                .collect();
            gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some(kernel.name),
                layout: &kernel.layout,
                entries: &entries,
            })
        });
        let encoder =
            self.encoder.get_or_insert_with(|| gpu.device.create_command_encoder(&Default::default()));
        if let Some(profiler) = &mut self.profiler {
            let timestamp_writes = profiler.next(kernel.name);
            let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
            self.pass = None;
            self.pass = Some(encoder.begin_compute_pass(&descriptor).forget_lifetime());
        }
        let pass = self
            .pass
            .get_or_insert_with(|| encoder.begin_compute_pass(&Default::default()).forget_lifetime());
        pass.set_pipeline(&kernel.pipeline);
        pass.set_bind_group(0, &*bind_group, &[]);
        match groups {
            Groups::Linear(count) => pass.dispatch_workgroups(count.min(FOLD), count.div_ceil(FOLD), 1),
            Groups::Grid(x, y) => pass.dispatch_workgroups(x, y, 1),
            Groups::Indirect(buffer, which) => pass.dispatch_workgroups_indirect(buffer, which * 12),
        }
    }

    /// Drops what refers to buffers that are no longer used.
    pub(super) fn forget_buffers(&mut self) {
        self.bind_groups.clear();
    }

    /// Hands what was recorded to the device.
    pub(super) fn submit(&mut self, gpu: &Gpu) -> wgpu::SubmissionIndex {
        self.pass = None;
        gpu.queue.submit(self.encoder.take().map(wgpu::CommandEncoder::finish))
    }

    /// Submits what was recorded, and what was written into buffers, and waits for it. Until then there is a copy of all that was
    /// written.
    ///
    /// # Errors
    /// [`ErrorKind::Gpu`] if the device fails.
    pub(super) fn finish(&mut self, gpu: &Gpu) -> Result<()> {
        let submission = self.submit(gpu);
        gpu.wait_for(submission)
    }

    /// Submits what was recorded and, if passes are timed, waits for it.
    ///
    /// # Errors
    /// [`ErrorKind::Gpu`] if the device fails.
    pub(super) fn take_times(&mut self, gpu: &Gpu) -> Result<()> {
        let Some(mut profiler) = self.profiler.take() else { return Ok(()) };
        let moments = profiler.resolve(self.encoder(gpu)).map(|(buffer, bytes)| (buffer.clone(), bytes));
        if let Some((buffer, bytes)) = moments {
            let moments = self.submit_and_read(gpu, &buffer, 0, bytes).wait(gpu)?;
            profiler.add(gpu, &moments);
        }
        self.profiler = Some(profiler);
        Ok(())
    }

    /// Submits, with a copy of the first `bytes` bytes of `buffer` from `start` on as the last command.
    pub(super) fn submit_and_read(
        &mut self,
        gpu: &Gpu,
        buffer: &wgpu::Buffer,
        start: u64,
        bytes: u64,
    ) -> Pending {
        let staging = gpu.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("read back"),
            size: bytes,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.encoder(gpu).copy_buffer_to_buffer(buffer, start, &staging, 0, bytes);
        let submission = self.submit(gpu);
        Pending::new(staging, submission)
    }

    /// Submits, waits, and returns the first `bytes` (a multiple of 4) of `buffer`.
    ///
    /// # Errors
    /// [`ErrorKind::Gpu`] if the device fails.
    pub(super) fn read(&mut self, gpu: &Gpu, buffer: &wgpu::Buffer, bytes: u64) -> Result<Vec<u8>> {
        let mut data = Vec::with_capacity(bytes as usize);
        let mut start = 0;
        while start < bytes {
            let length = READ_CHUNK.min(bytes - start);
            data.extend_from_slice(&self.submit_and_read(gpu, buffer, start, length).wait(gpu)?);
            start += length;
        }
        if bytes == 0 {
            self.submit(gpu);
        }
        Ok(data)
    }

    /// Like [`Recorder::read`], as numbers.
    ///
    /// # Errors
    /// As [`Recorder::read`].
    pub(super) fn read_as<T: bytemuck::Pod>(
        &mut self,
        gpu: &Gpu,
        buffer: &wgpu::Buffer,
        count: usize,
    ) -> Result<Vec<T>> {
        let bytes = self.read(gpu, buffer, (count * size_of::<T>()) as u64)?;
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }
}

/// A staging buffer whose contents are on their way.
#[derive(Debug)]
pub(super) struct Pending {
    buffer: wgpu::Buffer,
    submission: wgpu::SubmissionIndex,
    done: mpsc::Receiver<std::result::Result<(), wgpu::BufferAsyncError>>,
}

impl Pending {
    /// Maps a buffer that the last submission writes.
    fn new(buffer: wgpu::Buffer, submission: wgpu::SubmissionIndex) -> Self {
        let (sender, done) = mpsc::channel();
        buffer.slice(..).map_async(wgpu::MapMode::Read, move |result| {
            // Nobody listens any more if the rasteriser was dropped meanwhile.
            let _ = sender.send(result);
        });
        Self { buffer, submission, done }
    }

    /// Waits for the contents.
    ///
    /// # Errors
    /// [`ErrorKind::Gpu`] if the device fails.
    pub(super) fn wait(self, gpu: &Gpu) -> Result<Vec<u8>> {
        gpu.wait_for(self.submission.clone())?;
        match self.try_take(gpu)? {
            Ok(bytes) => Ok(bytes),
            Err(_) => Err(gpu.failed("read", "the buffer was not mapped though all work is done")),
        }
    }

    /// The contents if they are here, else itself.
    ///
    /// # Errors
    /// [`ErrorKind::Gpu`] if the device fails.
    pub(super) fn try_take(self, gpu: &Gpu) -> Result<std::result::Result<Vec<u8>, Self>> {
        match self.done.try_recv() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(gpu.failed("read", error)),
            Err(mpsc::TryRecvError::Empty) => return Ok(Err(self)),
            Err(mpsc::TryRecvError::Disconnected) => {
                return Err(gpu.failed("read", "the driver dropped the request"));
            }
        }
        let bytes = self.buffer.slice(..).get_mapped_range().map_err(|e| gpu.failed("read", e))?.to_vec();
        self.buffer.unmap();
        gpu.check()?;
        Ok(Ok(bytes))
    }
}

impl Gpu {
    /// Waits until the device is through with a submission and all before it.
    ///
    /// # Errors
    /// [`ErrorKind::Gpu`] if it fails.
    fn wait_for(&self, submission: wgpu::SubmissionIndex) -> Result<()> {
        let wait = wgpu::PollType::Wait { submission_index: Some(submission), timeout: None };
        self.device.poll(wait).map_err(|e| self.failed("wait for the work", e))?;
        Ok(())
    }

    /// A buffer that shaders can bind, filled with zeros.
    ///
    /// # Errors
    /// [`ErrorKind::Gpu`] if it is larger than the device can bind, or the memory is full.
    pub(super) fn buffer(&self, what: &str, bytes: u64) -> Result<wgpu::Buffer> {
        self.buffer_for(what, bytes, wgpu::BufferUsages::STORAGE)
    }

    /// Like [`Gpu::buffer`], for other uses beside copying.
    ///
    /// # Errors
    /// As [`Gpu::buffer`].
    pub(super) fn buffer_for(
        &self,
        what: &str,
        bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer> {
        let size = bytes.max(16).next_multiple_of(16);
        if size > self.max_binding {
            return Err(Error::new(
                ErrorKind::Gpu,
                format!(
                    "the {what} need a buffer of {} MiB; the graphics device {self} can bind {} MiB at most \
                     (max_storage_buffer_binding_size)",
                    size >> 20,
                    self.max_binding >> 20
                ),
            )
            .hint("lower the quality or the resolution, or use another device"));
        }
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(what),
            size,
            usage: usage | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.check()?;
        Ok(buffer)
    }

    /// A uniform buffer with this content.
    ///
    /// # Errors
    /// As [`Gpu::buffer`].
    pub(super) fn uniform<T: bytemuck::Pod>(&self, what: &str, content: &T) -> Result<wgpu::Buffer> {
        let buffer = self.buffer_for(what, size_of::<T>() as u64, wgpu::BufferUsages::UNIFORM)?;
        self.queue.write_buffer(&buffer, 0, bytemuck::bytes_of(content));
        Ok(buffer)
    }
}
