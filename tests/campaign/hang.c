/* Stands in for ffmpeg: does nothing, for ever. */
#include <unistd.h>

int main(void) {
    for (;;) pause();
}
