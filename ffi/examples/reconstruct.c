/* Makes a scene of a video: reconstruct VIDEO FOLDER [STEPS]
 *
 * Prints how far it is. Interrupted with Ctrl-C it stops; the same call goes on where it was. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <reconstruct.h>

static rc_cancel *cancel;

static void interrupted(int signal_number) {
    (void)signal_number;
    rc_cancel_raise(cancel);
}

static int on_event(void *user, const rc_event *event) {
    int *shown = user;
    int percent = (int)(100.0f * event->total_fraction);
    if (event->kind == RC_EVENT_WARNING) {
        printf("warning: %s\n", event->message);
    } else if (event->kind == RC_EVENT_PROGRESS && percent > *shown) {
        printf("%3d %% %s\n", percent, event->step);
        *shown = percent;
    }
    return 0; /* go on */
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s VIDEO FOLDER [STEPS]\n", argv[0]);
        return 2;
    }
    if (rc_abi_version() != RC_ABI_VERSION) {
        fprintf(stderr, "the library is version %s: build this program again\n", rc_version());
        return 1;
    }
    cancel = rc_cancel_new();
    signal(SIGINT, interrupted);

    rc_reconstruction options = RC_RECONSTRUCTION_INIT;
    options.quality = RC_QUALITY_PREVIEW;
    options.no_turntable = true;
    options.training_num_steps = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;

    int shown = -1;
    char *report = NULL;
    rc_error *error = NULL;
    rc_code code = rc_reconstruct(argv[1], argv[2], &options, on_event, &shown, cancel, &report, &error);
    if (code == RC_OK) {
        printf("the scene is in %s; its report has %s\n", argv[2], report[0] == '{' ? "all figures" : "nothing");
    } else {
        fprintf(stderr, "%s: %s\n", rc_code_name(code), rc_error_message(error));
        if (rc_error_hint(error)) fprintf(stderr, "%s\n", rc_error_hint(error));
    }
    rc_string_free(report);
    rc_error_free(error);
    rc_cancel_free(cancel);
    return code == RC_OK ? 0 : 1;
}
