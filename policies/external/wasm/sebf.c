/*
 * SEBF is smallest effective bottleneck first (Varys, SIGCOMM 2014), a coflow policy of testbed as a WebAssembly module:
 * the same decisions as the policy sebf. It needs no library:
 *
 *	clang --target=wasm32 -O2 -ffreestanding -nostdlib -Wl,--no-entry -o sebf.wasm sebf.c
 *
 * Sizes are in bytes, rates in bit/s. docs/writing-a-policy.md describes the messages.
 */
#include <stdint.h>

#define EXPORT(name) __attribute__((export_name(#name))) name

/* The numbers of a coflow, in the order of the message. Numbers of links and flows follow. */
struct coflow {
	int64_t id, arrival, width, senders, receivers, left, sent, most_sent, queue, since, finished, median, pilots, pilots_left,
		pilot_sent, size, largest, remaining, bound, links, idle, flows;
};

/* A time: bytes divided by a rate. With rate 0 it is longer than any other. */
struct quotient {
	uint64_t bytes, rate;
};

/* What coflows are ordered by. */
struct key {
	struct quotient time;
	int64_t id;
	int64_t index; /* in the message */
};

/* Memory of a size that only grows: what is too small is given up. */
struct buffer {
	void *at;
	uint32_t size;
};

static struct buffer message, capacities, keys, answer;

static void *fit(struct buffer *b, uint32_t size)
{
	const uint32_t page = 65536;

	if (size > b->size) {
		uint32_t pages = 2 * (size / page + 1);
		uint32_t at = __builtin_wasm_memory_grow(0, pages);

		if (at == (uint32_t)-1)
			__builtin_trap(); /* the bound "memory" of the arm */
		b->at = (void *)(at * page);
		b->size = pages * page;
	}
	return b->at;
}

/* The product of two numbers. */
struct product {
	uint64_t high, low;
};

static struct product multiply(uint64_t a, uint64_t b)
{
	uint64_t ah = a >> 32, al = (uint32_t)a, bh = b >> 32, bl = (uint32_t)b;
	uint64_t low = al * bl;
	uint64_t middle = ah * bl + (low >> 32);
	uint64_t other = al * bh + (uint32_t)middle;

	return (struct product){ah * bh + (middle >> 32) + (other >> 32), other << 32 | (uint32_t)low};
}

/* Is a time shorter (-1) or longer (1) than another? */
static int compare(struct quotient a, struct quotient b)
{
	struct product x, y;

	if (a.rate == b.rate)
		return (a.bytes > b.bytes) - (a.bytes < b.bytes);
	if (a.rate == 0 || b.rate == 0)
		return a.rate == 0 ? 1 : -1;
	x = multiply(a.bytes, b.rate);
	y = multiply(b.bytes, a.rate);
	if (x.high != y.high)
		return x.high > y.high ? 1 : -1;
	return (x.low > y.low) - (x.low < y.low);
}

/* Does a coflow come before another? Ties by ID. */
static int before(const struct key *a, const struct key *b)
{
	int c = compare(a->time, b->time);

	return c < 0 || (c == 0 && a->id < b->id);
}

/* The longest time that a link needs for the remaining bytes of a coflow. */
static struct quotient bottleneck(int64_t n, const uint32_t *links, const int64_t *remaining)
{
	const int64_t *capacity = capacities.at;
	struct quotient longest = {0, 1};

	for (int64_t i = 0; i < n; i++) {
		struct quotient q = {remaining[i], capacity[links[i]]};

		if (capacity[links[i]] <= 0)
			return (struct quotient){INT64_MAX, 0};
		if (compare(q, longest) > 0)
			longest = q;
	}
	return longest;
}

static char *text(char *to, const char *s)
{
	while (*s)
		*to++ = *s++;
	return to;
}

static char *number(char *to, uint64_t n)
{
	char digits[20];
	int left = 0;

	do
		digits[left++] = '0' + n % 10;
	while (n /= 10);
	while (left)
		*to++ = digits[--left];
	return to;
}

static char *step(char *to, const char *rule, int64_t n)
{
	const struct key *order = keys.at;

	to = text(text(text(to, "{\"rule\":\""), rule), "\",\"coflows\":[");
	for (int64_t i = 0; i < n; i++) {
		if (i > 0)
			*to++ = ',';
		to = number(to, order[i].index);
	}
	return text(to, "]}");
}

/* The place and the size of the answer, as testbed reads them. */
static uint64_t said(const char *end)
{
	uint32_t from = (uint32_t)answer.at;

	return (uint64_t)from << 32 | ((uint32_t)end - from);
}

void *EXPORT(alloc)(uint32_t size)
{
	return fit(&message, size);
}

/* Capacities are in the messages, so that the fabric need not be read. */
uint64_t EXPORT(hello)(void *at, uint32_t size)
{
	(void)at, (void)size;
	return said(text(fit(&answer, 1000), "{\"type\":\"hello\",\"version\":2,\"views\":\"binary\",\"needs\":[\"sizes\",\"links\"],"
					     "\"triggers\":{\"coflows\":true,\"flows\":true}}"));
}

uint64_t EXPORT(decide)(const int64_t *m, uint32_t size)
{
	int64_t number_of_it = m[0], links = m[2], n;
	const int64_t *at = m + 3 + links;
	struct key *order;
	char *to;

	(void)size;
	if (links > 0) { /* otherwise they are as before */
		int64_t *capacity = fit(&capacities, links * sizeof *capacity);

		for (int64_t i = 0; i < links; i++)
			capacity[i] = m[3 + i];
	}
	n = *at++;
	order = fit(&keys, n * sizeof *order);
	for (int64_t i = 0; i < n; i++) {
		const struct coflow *c = (const void *)at;
		const uint32_t *link = (const void *)(c + 1);
		int64_t column = (c->links + 1) / 2; /* of 32 bits, filled up */
		const int64_t *remaining = (const int64_t *)(c + 1) + 2 * column;
		struct key k = {bottleneck(c->links, link, remaining), c->id, i};
		int64_t j = i;

		for (; j > 0 && before(&k, &order[j - 1]); j--)
			order[j] = order[j - 1];
		order[j] = k;
		at = remaining + c->links + (c->pilots_left > 0 ? c->links : 0) + c->idle;
		for (int64_t f = 0; f < c->flows; f++)
			at += 8 + at[7];
	}
	to = fit(&answer, 200 + 42 * n); /* two steps, 20 digits and a comma a coflow */
	to = text(number(text(to, "{\"type\":\"schedule\",\"n\":"), number_of_it), ",\"steps\":[");
	if (n > 0)
		to = step(text(step(to, "madd", n), ","), "greedy", n);
	return said(text(to, "]}"));
}
