/* A simulated libnvidia-ml.so.1, which tests/helper.rs builds: it plays what the file named by FAKE_NVML says, read
 * again at each call, and writes each call's name into that file's name with ".calls" behind it.
 *
 * Words: total=MIB free=MIB (8000, 6000), leak=MIB (a second, from now on), xid=CODE, processes=N, gpus=N, recovery=N,
 * v1 (no version 2 of the memory's call), unsupported, lost, reset, gone (not found any more), mismatch, nodriver, grow
 * (a process list that is longer by ten when it is fetched), noevents, hang.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, NO_DRIVER = 9, TIMEOUT = 10, LOST = 15, RESET = 16,
       MISMATCH = 18, UNKNOWN = 999 };
typedef unsigned long long u64;
typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned version; u64 total, reserved, free, used; } Memory2;
typedef struct { unsigned pid; u64 used; unsigned gpu, compute; } Process;
typedef struct { void *device; u64 type, data; unsigned gpu, compute; } Event;
typedef struct { unsigned id, scope; long long time, latency; unsigned type, result; u64 value; } Field;

static char cards[16];
static time_t leaking;

static const char *script(void) {
    static _Thread_local char text[512];
    FILE *file = fopen(getenv("FAKE_NVML") ? getenv("FAKE_NVML") : "/nonexistent", "r");
    size_t length = file ? fread(text + 1, 1, sizeof text - 3, file) : 0;
    if (file) fclose(file);
    text[0] = ' ';
    for (size_t i = 1; i <= length; i++) if (text[i] == '\n') text[i] = ' ';
    text[length + 1] = ' ';
    text[length + 2] = 0;
    return text;
}

static int says(const char *word) {
    char padded[32];
    snprintf(padded, sizeof padded, " %s ", word);
    return strstr(script(), padded) != NULL;
}

static u64 number(const char *word, u64 without) {
    char padded[32];
    snprintf(padded, sizeof padded, " %s=", word);
    const char *found = strstr(script(), padded);
    return found ? strtoull(found + strlen(padded), NULL, 10) : without;
}

static void called(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s.calls", getenv("FAKE_NVML") ? getenv("FAKE_NVML") : "/nonexistent/x");
    FILE *file = fopen(path, "a");
    if (file) { fprintf(file, "%s\n", name); fclose(file); }
    while (says("hang")) pause();
}

static int state(void) {
    if (says("lost")) return LOST;
    if (says("reset")) return RESET;
    return says("unsupported") ? NOT_SUPPORTED : SUCCESS;
}

static u64 space(void) {
    u64 free = number("free", 6000), leak = number("leak", 0);
    if (!leak) { leaking = 0; return free << 20; }
    if (!leaking) leaking = time(NULL);
    u64 lost = leak * (u64)(time(NULL) - leaking);
    return (lost < free ? free - lost : 0) << 20;
}

int nvmlInit_v2(void) {
    called("nvmlInit_v2");
    return says("mismatch") ? MISMATCH : says("nodriver") ? NO_DRIVER : SUCCESS;
}
int nvmlShutdown(void) { called("nvmlShutdown"); return SUCCESS; }
int nvmlSystemGetDriverVersion(char *out, unsigned length) { snprintf(out, length, "999.1"); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)number("gpus", 1); return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    called("nvmlDeviceGetHandleByIndex_v2");
    if (says("gone")) return NOT_FOUND;
    *device = &cards[index % 16];
    return SUCCESS;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) {
    called("nvmlDeviceGetHandleByPciBusId_v2");
    if (says("gone")) return NOT_FOUND;
    *device = &cards[strtoul(id + 5, NULL, 16) % 16];
    return SUCCESS;
}
int nvmlDeviceGetIndex(void *device, unsigned *index) { *index = (unsigned)((char *)device - cards); return SUCCESS; }
int nvmlDeviceGetMemoryInfo(void *device, Memory *out) {
    called("nvmlDeviceGetMemoryInfo");
    out->total = number("total", 8000) << 20;
    out->free = space();
    out->used = out->total - out->free;
    return state();
}
int nvmlDeviceGetMemoryInfo_v2(void *device, Memory2 *out) {
    called("nvmlDeviceGetMemoryInfo_v2");
    if (says("v1")) return UNKNOWN;
    if (out->version != (sizeof *out | 2u << 24)) return 25;
    out->total = number("total", 8000) << 20;
    out->free = space();
    out->reserved = 300 << 20;
    out->used = out->total - out->free - out->reserved;
    return state();
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *list) {
    called("nvmlDeviceGetComputeRunningProcesses_v3");
    unsigned have = (unsigned)number("processes", 0);
    if (list && says("grow")) have += 10;
    if (*count < have) { *count = have; return INSUFFICIENT_SIZE; }
    for (unsigned i = 0; i < have; i++) {
        memset(&list[i], 0, sizeof list[i]);
        list[i].pid = 1000 + i;
        list[i].used = (100ull + i) << 20;
    }
    *count = have;
    return SUCCESS;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, Process *list) { *count = 0; return SUCCESS; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, u64 *out) { *out = 0x40; return SUCCESS; }
int nvmlDeviceGetFieldValues(void *device, int count, Field *fields) {
    for (int i = 0; i < count; i++) {
        fields[i].type = 1;
        fields[i].result = SUCCESS;
        fields[i].value = number("recovery", 0);
    }
    return SUCCESS;
}
int nvmlDeviceGetSupportedEventTypes(void *device, u64 *out) {
    *out = says("noevents") ? 0 : 8;
    return says("noevents") ? NOT_SUPPORTED : SUCCESS;
}
int nvmlEventSetCreate(void **set) { *set = cards; return SUCCESS; }
int nvmlEventSetFree(void *set) { return SUCCESS; }
int nvmlDeviceRegisterEvents(void *device, u64 types, void *set) { called("nvmlDeviceRegisterEvents"); return SUCCESS; }
int nvmlEventSetWait_v2(void *set, Event *out, unsigned ms) {
    static u64 told;
    for (unsigned waited = 0; waited < ms; waited += 50) {
        u64 xid = number("xid", 0);
        if (xid && xid != told) {
            told = xid;
            memset(out, 0, sizeof *out);
            out->device = cards;
            out->type = 8;
            out->data = xid;
            return SUCCESS;
        }
        usleep(50000);
    }
    return TIMEOUT;
}
