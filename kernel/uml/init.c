// SPDX-License-Identifier: GPL-2.0
/*
 * The first process of the lab kernel: makes a system out of the host's files, runs one command in it, and
 * powers off. It is the only part of Fairbed's guest that knows where it runs.
 *
 * The root is an overlay: the host's file system below, memory above. The guest can read what its caller can
 * read, and whatever it writes vanishes with it, except in the directories handed to it as writable.
 *
 * The kernel's own working directory on the host (/proc/self/cwd in the host's /proc, which the root shows at first) has
 * a folder "job", made by lab/guest.py, with
 *   argv, env    the command and its environment, each entry ended by a NUL
 *   cwd          the working directory
 *   binds        directories to mount: "w" or "r" (writable or read-only), the host's path, the guest's path, each ended
 *                by a NUL
 *   modules      kernel modules to load, each ended by a NUL
 *   entropy      256 bytes that the kernel's random generator is credited with
 *   tty          present when the caller is a terminal: "rows columns"
 * and, written here, status: the command's exit status (128 + signal when it was killed).
 * Console 1 is the command's standard input and output, console 2 its standard error.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/random.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define ROOT "/proc/root"	/* of the overlay while it is being put together */
#define MAX_ENTRIES 1024
#define GUEST_JOB "/run/fairbed/job"

static char job[PATH_MAX];

static void power_off(void)
{
	sync();
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}

static void fail(const char *what, const char *which)
{
	fprintf(stderr, "fairbed init: %s %s: %s\n", what, which, strerror(errno));
	power_off();
}

/* The content of job/name, NUL-terminated, or NULL when there is none. */
static char *job_file(const char *name, size_t *length)
{
	char path[PATH_MAX + 128];
	struct stat info;
	char *content;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", job, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &info))
		return NULL;
	content = calloc(1, info.st_size + 2);
	*length = 0;
	for (ssize_t n; (n = read(fd, content + *length, info.st_size - *length)) > 0;)
		*length += n;
	close(fd);
	return content;
}

/* The NUL-ended entries of job/name, ended by a NULL pointer. */
static char **job_list(const char *name)
{
	char **list = calloc(MAX_ENTRIES + 1, sizeof(*list));
	size_t length, count = 0;
	char *content = job_file(name, &length);

	for (char *p = content; p && p < content + length && count < MAX_ENTRIES; p += strlen(p) + 1)
		list[count++] = p;
	return list;
}

static void mount_or_fail(const char *source, const char *target, const char *type, unsigned long flags,
			  const char *options)
{
	if (mount(source, target, type, flags, options))
		fail("mount", target);
}

static void make_path(const char *path)
{
	char partial[PATH_MAX + 128];

	snprintf(partial, sizeof(partial), "%s", path);
	for (char *slash = partial + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = 0;
		mkdir(partial, 0755);
	}
	mkdir(partial, 0755);
}

static void mount_special(void)
{
	mount_or_fail("devtmpfs", ROOT "/dev", "devtmpfs", 0, NULL);
	mkdir(ROOT "/dev/pts", 0755);
	mkdir(ROOT "/dev/shm", 0755);
	mount_or_fail("devpts", ROOT "/dev/pts", "devpts", 0, "ptmxmode=0666");
	mount_or_fail("shm", ROOT "/dev/shm", "tmpfs", 0, NULL);
	mount_or_fail("run", ROOT "/run", "tmpfs", 0, "mode=0755");
	mount_or_fail("proc", ROOT "/proc", "proc", 0, NULL);
	mount_or_fail("sysfs", ROOT "/sys", "sysfs", 0, NULL);
	mkdir(ROOT "/run/lock", 0755);
	mkdir(ROOT "/run/netns", 0755);
}

static void mount_binds(void)
{
	char target[PATH_MAX + 128];

	for (char **bind = job_list("binds"); bind[0] && bind[1] && bind[2]; bind += 3) {
		snprintf(target, sizeof(target), ROOT "%s", bind[2]);
		make_path(target);
		mount_or_fail(bind[1], target, NULL, MS_BIND, NULL);
		if (*bind[0] == 'r')
			mount_or_fail(NULL, target, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL);
	}
}

/* /proc exists on every host and is still empty here, so the parts are assembled there. */
static void make_root(void)
{
	mount_or_fail("scratch", "/proc", "tmpfs", 0, "mode=0755");
	mkdir("/proc/upper", 0755);
	mkdir("/proc/work", 0755);
	mkdir(ROOT, 0755);
	mount_or_fail("root", ROOT, "overlay", 0, "lowerdir=/,upperdir=/proc/upper,workdir=/proc/work");
	mount_special();
	mount_binds();
	if (chdir(ROOT) || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		fail("enter", "the new root");
}

static void credit_entropy(void)
{
	struct {
		struct rand_pool_info info;
		char bytes[256];
	} pool = { .info = { .entropy_count = 8 * 256, .buf_size = 256 } };
	size_t length;
	char *bytes = job_file("entropy", &length);
	int fd = open("/dev/random", O_RDWR | O_CLOEXEC);

	if (!bytes || length != sizeof(pool.bytes) || fd < 0)
		fail("read", "entropy");
	memcpy(pool.info.buf, bytes, length);
	if (ioctl(fd, RNDADDENTROPY, &pool))
		fail("credit", "entropy");
	close(fd);
}

static void loopback_up(void)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request))
		fail("bring up", "lo");
	close(fd);
}

static void use_guest_job(void)
{
	snprintf(job, sizeof(job), GUEST_JOB);
}

static void load_modules(void)
{
	for (char **path = job_list("modules"); *path; path++) {
		int fd = open(*path, O_RDONLY | O_CLOEXEC);

		if (fd < 0 || syscall(SYS_finit_module, fd, "", 0))
			fail("load module", *path);
		close(fd);
	}
}

/* The command's bytes go through the consoles unchanged unless the caller is a terminal itself. */
static void open_console(const char *device, int first, int last, const char *size)
{
	struct termios mode;
	struct winsize window = { 0 };
	int fd = open(device, O_RDWR);

	if (fd < 0 || tcgetattr(fd, &mode))
		fail("open", device);
	if (size && sscanf(size, "%hu %hu", &window.ws_row, &window.ws_col) == 2)
		ioctl(fd, TIOCSWINSZ, &window);
	else
		cfmakeraw(&mode);
	tcsetattr(fd, TCSANOW, &mode);
	for (int target = first; target <= last; target++)
		dup2(fd, target);
	if (fd > last)
		close(fd);
}

static void run_command(void)
{
	size_t length;
	char *cwd = job_file("cwd", &length), *tty = job_file("tty", &length);
	char **argv = job_list("argv"), **env = job_list("env");

	setsid();
	open_console("/dev/tty1", 0, 1, tty);
	open_console(tty ? "/dev/tty1" : "/dev/tty2", 2, 2, tty);
	if (tty) {
		ioctl(0, TIOCSCTTY, 1);
	} else {
		int null = open("/dev/null", O_RDONLY);

		dup2(null, 0);
		close(null);
	}
	if (cwd && chdir(cwd))
		fprintf(stderr, "fairbed: %s: %s\n", cwd, strerror(errno));
	environ = env;
	execvpe(argv[0], argv, env);
	fprintf(stderr, "fairbed: %s: %s\n", argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

/*
 * Looking up a path of the host reads the clock, and reading the virtual clock moves it: until here its time depends on
 * how deep the host's directories are. From a whole second on it does not.
 */
static void wait_until(time_t second)
{
	struct timespec when = { .tv_sec = second };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL);
}

static int wait_for(pid_t command)
{
	int status;
	pid_t pid;

	do
		pid = wait(&status);
	while (pid != command && (pid > 0 || errno == EINTR));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void drain(const char *device)
{
	int fd = open(device, O_RDWR | O_NOCTTY);

	if (fd >= 0)
		tcdrain(fd);
}

static void report(int status)
{
	const char *path = GUEST_JOB "/status";
	char text[16];
	int fd, length = snprintf(text, sizeof(text), "%d\n", status);

	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0 || write(fd, text, length) != length || fsync(fd))
		fail("write", path);
	close(fd);
}

int main(void)
{
	pid_t command;

	if (!realpath("/proc/self/cwd/job", job))
		fail("find", "the job");
	make_root();
	if (sethostname("fairbed", 7))
		fail("set", "the host's name");
	use_guest_job();
	credit_entropy();
	loopback_up();
	load_modules();
	wait_until(1);
	command = fork();
	if (command == 0)
		run_command();
	report(wait_for(command));
	drain("/dev/tty1");
	drain("/dev/tty2");
	power_off();
}
