/* Opens, submits, waits, lists, cancels, deletes and frees, over and over: cycle FOLDER VIDEO TIMES
 *
 * Run under AddressSanitizer, LeakSanitizer and Valgrind: what is not freed, or used after it was, is found there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <reconstruct.h>

/* Cycles for which an engine stays open. */
#define ENGINE 20

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

static void ok(rc_code code, rc_error *error) {
    if (code != RC_OK) {
        fprintf(stderr, "%s: %s\n", rc_code_name(code), rc_error_debug(error));
        exit(1);
    }
    CHECK(error == NULL);
}

static int stop_waiting(void *user, const rc_job_info *info) {
    int *calls = user;
    *calls += 1;
    CHECK(info->status == RC_JOB_QUEUED);
    return 1;
}

static void refused(const rc_engine *engine) {
    rc_error *error = NULL;
    rc_job *job = NULL;
    CHECK(rc_engine_job(engine, "no id", &job, &error) == RC_NOT_FOUND);
    CHECK(job == NULL && rc_error_code(error) == RC_NOT_FOUND && strlen(rc_error_message(error)) > 0);
    rc_error_free(error);
    CHECK(rc_engine_job(engine, NULL, &job, NULL) == RC_NULL_ARGUMENT);
}

static void one_job(const rc_engine *engine, const char *video) {
    rc_error *error = NULL;
    char *blob = NULL, *json = NULL, *title = NULL;
    rc_job *job = NULL, *same = NULL;
    rc_job_list *list = NULL;
    rc_request request = RC_REQUEST_INIT;
    rc_job_changes changes = RC_JOB_CHANGES_INIT;
    rc_list_query query = RC_LIST_QUERY_INIT;
    rc_job_info info = RC_JOB_INFO_INIT;
    int calls = 0;

    ok(rc_engine_import_video(engine, video, &blob, &error), error);
    request.title = "K\xc3\xbc" "che";
    ok(rc_engine_submit(engine, blob, &request, &job, &error), error);
    rc_string_free(blob);

    CHECK(rc_job_wait(job, 0.0, NULL, NULL, &error) == RC_DEADLINE_EXCEEDED);
    rc_error_free(error);
    error = NULL;
    CHECK(rc_job_wait(job, 10.0, stop_waiting, &calls, NULL) == RC_CANCELLED && calls == 1);

    changes.title = "Garden";
    ok(rc_job_update(job, &changes, &error), error);
    ok(rc_job_title(job, &title, &error), error);
    CHECK(strcmp(title, "Garden") == 0);
    rc_string_free(title);
    ok(rc_job_json(job, &json, &error), error);
    CHECK(strstr(json, rc_job_id(job)) != NULL);
    rc_string_free(json);

    query.limit = 1;
    ok(rc_engine_jobs(engine, &query, &list, &error), error);
    CHECK(rc_job_list_count(list) == 1 && strcmp(rc_job_list_id(list, 0), rc_job_id(job)) == 0);
    CHECK(rc_job_list_id(list, 1) == NULL);
    rc_job_list_free(list);

    ok(rc_engine_job(engine, rc_job_id(job), &same, &error), error);
    ok(rc_job_cancel(same, &error), error);
    ok(rc_job_wait(job, -1.0, NULL, NULL, &error), error);
    ok(rc_job_get_info(job, &info, &error), error);
    CHECK(info.status == RC_JOB_FAILED);
    {
        rc_error *failure = NULL;
        ok(rc_job_failure(job, &failure, &error), error);
        CHECK(rc_error_code(failure) == RC_CANCELLED);
        rc_error_free(failure);
    }
    ok(rc_job_delete(same, &error), error);
    CHECK(rc_job_json(job, &json, NULL) == RC_NOT_FOUND);
    rc_job_free(same);
    rc_job_free(job);
}

/* What has no job: uploads, keys, scenes, pictures. */
static void other_things(const rc_engine *engine) {
    rc_error *error = NULL;
    rc_upload *upload = NULL;
    rc_engine *other = NULL;
    char *secret = NULL, *text = NULL;
    rc_scene *scene = NULL;
    rc_renderer *renderer = NULL;
    rc_splats splats = RC_SPLATS_INIT, seen = RC_SPLATS_INIT;
    rc_view view = RC_VIEW_INIT;
    const double position[3] = { 0.0, 0.0, -3.0 }, target[3] = { 0.0, 0.0, 0.0 }, up[3] = { 0.0, -1.0, 0.0 };
    const float mean[3] = { 0.0f, 0.0f, 0.0f }, scale[3] = { -1.0f, -1.0f, -1.0f }, rotation[4] = { 1.0f, 0.0f, 0.0f, 0.0f };
    const float opacity = 3.0f, colour[3] = { 1.0f, 0.0f, -1.0f };
    unsigned char pixels[4 * 32 * 24];

    ok(rc_engine_begin_upload(engine, "garden.mp4", &upload, &error), error);
    ok(rc_upload_append(upload, "no video", 8, &error), error);
    rc_upload_free(upload);
    ok(rc_engine_create_key(engine, "laptop", &secret, &error), error);
    ok(rc_engine_for_key(engine, secret, &other, &error), error);
    ok(rc_engine_keys_json(other, &text, &error), error);
    rc_string_free(text);
    *strchr(secret, '.') = '\0';
    ok(rc_engine_revoke_key(other, secret, &error), error);
    rc_engine_free(other);
    rc_string_free(secret);

    splats.count = 1;
    splats.means = mean;
    splats.log_scales = scale;
    splats.rotations = rotation;
    splats.opacities = &opacity;
    splats.sh = colour;
    ok(rc_scene_new(&splats, &scene, &error), error);
    ok(rc_scene_splats(scene, &seen, &error), error);
    CHECK(seen.count == 1 && seen.sh_coefficients == 1 && seen.means != mean && seen.sh[2] == -1.0f);
    ok(rc_renderer_open(scene, "cpu", &renderer, &error), error);
    rc_scene_free(scene);
    ok(rc_view_look_at(&view, position, target, up, 45.0, 32, 24, &error), error);
    ok(rc_renderer_render(renderer, &view, pixels, sizeof pixels, &error), error);
    CHECK(pixels[4 * (12 * 32 + 16)] > pixels[4 * (12 * 32 + 16) + 2]);
    rc_renderer_free(renderer);
}

int main(int argc, char **argv) {
    rc_engine *engine = NULL;
    rc_error *error = NULL;
    long times, k;
    CHECK(argc == 4);
    times = strtol(argv[3], NULL, 10);
    for (k = 0; k < times; ++k) {
        if (k % ENGINE == 0) {
            rc_engine_options options = RC_ENGINE_OPTIONS_INIT;
            rc_engine_free(engine);
            /* Every other engine has a worker, so that its threads come and go too. */
            options.settings_json = "{\"min_free_bytes\": 0}";
            ok(rc_engine_open(argv[1], &options, &engine, &error), error);
            other_things(engine);
            if (k / ENGINE % 2 == 1) {
                ok(rc_engine_start_workers(engine, 1, NULL, &error), error);
                ok(rc_engine_stop_workers(engine, -1.0, &error), error);
            }
        }
        refused(engine);
        one_job(engine, argv[2]);
    }
    rc_engine_free(engine);
    printf("%ld cycles\n", times);
    return 0;
}
