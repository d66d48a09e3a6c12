// pairs sends bytes over TCP from or to one host, with system calls alone: the limit of what a host must do.
//
//   pairs receive PORT BYTES
//   pairs send ADDRESS PORT BYTES AT      AT: seconds since 1970
#include <arpa/inet.h>
#include <err.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char buffer[65536];

static int receive(int port, long long left)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = INADDR_ANY};
	int yes = 1, one, s = socket(AF_INET, SOCK_STREAM, 0);
	ssize_t n;

	if (s < 0 || setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) || bind(s, (void *)&a, sizeof a) || listen(s, 1))
		err(1, "listen");
	if ((one = accept(s, 0, 0)) < 0)
		err(1, "accept");
	for (; left > 0; left -= n)
		if ((n = read(one, buffer, sizeof buffer)) <= 0)
			err(1, "read");
	return 0;
}

static int send_at(const char *address, int port, long long left, double at)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct timespec t = {(time_t)at, 0};
	int s = socket(AF_INET, SOCK_STREAM, 0);
	ssize_t n;

	if (s < 0 || inet_pton(AF_INET, address, &a.sin_addr) != 1)
		errx(1, "address %s", address);
	if (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, 0))
		errx(1, "sleep");
	if (connect(s, (void *)&a, sizeof a))
		err(1, "connect to %s", address);
	for (; left > 0; left -= n)
		if ((n = write(s, buffer, left < (long long)sizeof buffer ? left : sizeof buffer)) < 0)
			err(1, "write");
	return 0;
}

int main(int argc, char **argv)
{
	alarm(60);
	if (argc == 4 && !strcmp(argv[1], "receive"))
		return receive(atoi(argv[2]), atoll(argv[3]));
	if (argc == 6 && !strcmp(argv[1], "send"))
		return send_at(argv[2], atoi(argv[3]), atoll(argv[4]), atof(argv[5]));
	errx(2, "usage: pairs receive PORT BYTES | send ADDRESS PORT BYTES AT");
}
