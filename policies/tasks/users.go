package tasks

// users numbers the users of the unfinished jobs, in order of their first job.
type users struct {
	of    []int    // user of each job
	names []string // by user
	first []int    // first job, by user
	// byUser has the jobs of all users, in order; those of user u are byUser[ends[u-1]:ends[u]].
	byUser, ends []int
}

// group finds the users. It keeps the order of the given jobs, a permutation of all, in byUser.
func group(d *decision, order []int) (u users) {
	n := len(d.v.Jobs)
	u.of = d.a.Ints(n)
	u.names, u.first = make([]string, 0, 32), make([]int, 0, 32)
	table := d.a.Ints(64) // user + 1, by hash
	for i := range d.v.Jobs {
		name := d.v.Jobs[i].User
		if i > 0 && name == d.v.Jobs[i-1].User {
			u.of[i] = u.of[i-1]
			continue
		}
		at := place(name)
		for at &= len(table) - 1; table[at] != 0 && u.names[table[at]-1] != name; at = (at + 1) & (len(table) - 1) {
		}
		if table[at] == 0 {
			u.names, u.first = append(u.names, name), append(u.first, i)
			table[at] = len(u.names)
			if 2*len(u.names) >= len(table) {
				table = d.a.Ints(4 * len(table))
				for j, name := range u.names {
					at := place(name)
					for at &= len(table) - 1; table[at] != 0; at = (at + 1) & (len(table) - 1) {
					}
					table[at] = j + 1
				}
			}
			u.of[i] = len(u.names) - 1
			continue
		}
		u.of[i] = table[at] - 1
	}
	u.ends = d.a.Ints(len(u.names))
	for _, p := range u.of {
		u.ends[p]++
	}
	at := 0
	for p, n := range u.ends {
		u.ends[p] = at // its start, until its jobs are in
		at += n
	}
	u.byUser = d.a.Ints(n)
	for _, i := range order {
		p := u.of[i]
		u.byUser[u.ends[p]] = i
		u.ends[p]++
	}
	return u
}

// jobs returns the jobs of a user.
func (u *users) jobs(p int) []int {
	start := 0
	if p > 0 {
		start = u.ends[p-1]
	}
	return u.byUser[start:u.ends[p]]
}

// place returns a hash of a name for a table in memory.
func place(s string) int {
	h := uint64(len(s))
	for ; len(s) > 8; s = s[8:] {
		h = (h ^ (uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56)) * 0x9e3779b97f4a7c15
		h ^= h >> 32
	}
	x := uint64(0)
	for i := range len(s) {
		x = x<<8 | uint64(s[i])
	}
	h = (h ^ x) * 0x9e3779b97f4a7c15
	return int(h >> 40)
}

// hash is FNV-1a, which identifies a name in TaskView.Memory.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
