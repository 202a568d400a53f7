//! An ONNX model that is ready to run, by `rten`.

use std::sync::Arc;

use crate::error::Error;
use rten::{Model, NodeId, RunOptions, ThreadPool, Value};

/// A model of which the first input and the first output matter, and the threads that it runs on.
pub(super) struct Session {
    model: Arc<Model>,
    input: NodeId,
    output: NodeId,
    pool: Arc<ThreadPool>,
}

impl Session {
    /// Reads an ONNX file; it runs on as many threads as the present rayon pool has. Of a file that cannot be used, `unusable` makes
    /// the error from the reason.
    pub(super) fn open(file: Vec<u8>, unusable: impl Fn(String) -> Error) -> crate::Result<Self> {
        let model = Arc::new(Model::load(file).map_err(|e| unusable(e.to_string()))?);
        let input = model.input_ids().first().copied().ok_or_else(|| unusable("it has no input".into()))?;
        let output =
            model.output_ids().first().copied().ok_or_else(|| unusable("it has no output".into()))?;
        let pool = Arc::new(ThreadPool::with_num_threads(rayon::current_num_threads()));
        Ok(Self { model, input, output, pool })
    }

    /// The same model on `threads` threads of its own.
    pub(super) fn with_threads(&self, threads: usize) -> Self {
        let pool = Arc::new(ThreadPool::with_num_threads(threads));
        Self { model: self.model.clone(), input: self.input, output: self.output, pool }
    }

    /// The output, with its shape, for an input of the shape `shape`.
    pub(super) fn run(&self, shape: [usize; 4], values: Vec<f32>) -> Result<([usize; 4], Vec<f32>), String> {
        let value = Value::from_shape(&shape, values).map_err(|e| e.to_string())?;
        let options = RunOptions::default().with_thread_pool(Some(self.pool.clone()));
        let outputs = self.model.run_n(vec![(self.input, value.into())], [self.output], Some(options));
        let [output] = outputs.map_err(|e| e.to_string())?;
        output.into_shape_vec::<f32, 4>().map_err(|e| e.to_string())
    }
}
