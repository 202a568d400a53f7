/* libreconstruct: a video becomes a 3D Gaussian scene.
 *
 * Functions may be called from any thread unless their comment says otherwise.
 */
#ifndef RECONSTRUCT_H
#define RECONSTRUCT_H

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library, for example "0.1.0". The string is static: it must not be freed. */
const char *rc_version(void);

#ifdef __cplusplus
}
#endif

#endif /* RECONSTRUCT_H */
