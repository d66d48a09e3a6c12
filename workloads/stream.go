package workloads

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
)

// Stream returns a random source for one purpose and object: the same seed, purpose and
// ids give the same numbers, independent of other draws and of policies. Purposes are
// short constant words such as "hash"; the ids identify the object (a flow, a block and
// an attempt).
func Stream(seed uint64, purpose string, ids ...int) *rand.Rand {
	key := make([]byte, 0, 128)
	key = binary.BigEndian.AppendUint64(key, seed)
	key = binary.BigEndian.AppendUint64(key, uint64(len(purpose)))
	key = append(key, purpose...)
	for _, id := range ids {
		key = binary.BigEndian.AppendUint64(key, uint64(id))
	}
	sum := sha256.Sum256(key)
	return rand.New(rand.NewPCG(binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])))
}

// RepeatSeed returns the seed of one repeat of an experiment, from 0. All arms of a
// repeat share it, so that comparisons between arms are paired.
func RepeatSeed(seed uint64, repeat int) uint64 {
	return Stream(seed, "repeat", repeat).Uint64()
}
