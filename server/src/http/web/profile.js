// All scripts of the profile.

import "./copy.js";
import "./passkeys.js";
