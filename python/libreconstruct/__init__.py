"""A video becomes a 3D Gaussian scene: in this process, or on a server.

```python
import libreconstruct as lr

scene = lr.reconstruct("kitchen.mp4", quality="preview")     # in one call, in this process
scene.save("kitchen.spz")

frames = lr.extract_frames("kitchen.mp4", "frames")          # stage by stage
model = lr.sfm(frames, "poses")                              # poses, lens and points as arrays; model.plot()

service = lr.Engine("scenes")                                # jobs in a folder; or lr.Client("https://…", api_key)
job = service.submit("kitchen.mp4", training_num_steps=2000)
job.wait(progress=True).download("spz", "kitchen.spz")
```

World and camera axes are COLMAP's: x right, y down, z forward; scenes are levelled, gravity points along +y, and their unit
is arbitrary. Everything raises a `ReconstructError` that says what was wrong and what to do.
"""

from ._camera import Camera
from ._client import Client
from ._engine import Engine
from ._errors import (
    AuthError,
    CancelledError,
    CannotReconstructError,
    ConflictError,
    DeadlineError,
    DeviceError,
    InternalError,
    InvalidInputError,
    JobCancelledError,
    JobFailedError,
    MissingDependencyError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    ReconstructError,
    ServerConnectionError,
    StorageError,
    UnsupportedError,
)
from ._frames import Frame, Frames, extract_frames
from ._job import Events, Job, JobEvent, JobPage, Service
from ._masks import find_weights as _find_weights
from ._model import Lens, SparseModel
from ._native import num_threads, set_num_threads, version
from ._progress import Progress, ReconstructionWarning
from ._reconstruct import devices, reconstruct
from ._scene import Scene, Video
from ._sfm import sfm
from ._trainer import Trainer, TrainStep

__version__ = version()
_find_weights()
__all__ = [
    "AuthError",
    "Camera",
    "CancelledError",
    "CannotReconstructError",
    "Client",
    "ConflictError",
    "DeadlineError",
    "DeviceError",
    "Engine",
    "Events",
    "Frame",
    "Frames",
    "InternalError",
    "InvalidInputError",
    "Job",
    "JobCancelledError",
    "JobEvent",
    "JobFailedError",
    "JobPage",
    "Lens",
    "MissingDependencyError",
    "NotFoundError",
    "PermissionDeniedError",
    "Progress",
    "RateLimitedError",
    "ReconstructError",
    "ReconstructionWarning",
    "Scene",
    "ServerConnectionError",
    "Service",
    "SparseModel",
    "StorageError",
    "TrainStep",
    "Trainer",
    "UnsupportedError",
    "Video",
    "devices",
    "extract_frames",
    "num_threads",
    "reconstruct",
    "set_num_threads",
    "sfm",
    "version",
]
