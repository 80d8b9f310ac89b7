package routing

// The weighted pick and the order of the walk.

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// fnv continues a 64-bit FNV-1a hash. It is written out because hash/fnv would allocate on the hot path.
func fnv(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}

// salt starts the hash of a sticky pick. The zero byte keeps name and key apart.
func salt(rule string) uint64 { return fnv(fnv(fnvOffset, rule), "\x00") }

// spread mixes a hash so that each of its bits depends on all of them (the finalizer of MurmurHash3). FNV-1a alone
// would not do: its lowest bit is the parity of the input's, so that under weights 1:1 every rule would split the same
// users the same way, whatever its salt.
func spread(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// first chooses the model that leads the chain.
//
// Which key lands on which model is a promise that outlives processes and releases: changing the hash or the order of
// its parts moves users between the arms of a running experiment.
func (r *rule) first(q *Query) int {
	if r.shares == nil {
		return 0
	}
	total := r.shares[len(r.shares)-1]
	at := int64(q.Draw * float64(total))
	if key := stickyKey(q.Attributes); key != "" {
		at = int64(spread(fnv(r.salt, key)) % uint64(total))
	}
	for i, share := range r.shares {
		if at < share {
			return i
		}
	}
	return len(r.shares) - 1 // a draw that rounds up to the total
}

// stickyKey is what keeps a caller on one model; empty leaves it to the draw.
func stickyKey(attributes map[string]string) string {
	if attributes[AttrCanaryMode] == "random" {
		return ""
	}
	if key := attributes[AttrCanaryKey]; key != "" {
		return key
	}
	return attributes[AttrUserID]
}

// walkOrder calls visit for each model of the chain: the picked one before the others, and then, where the placement
// prefers a side, that side's models before the other's. Both steps keep the order of the rest. The placements that
// exclude a side do not reorder, as that side is dropped anyway.
func walkOrder(chain []*model, first int, p Placement, visit func(*model)) {
	at := func(i int) *model {
		switch {
		case i == 0:
			return chain[first]
		case i <= first:
			return chain[i-1]
		default:
			return chain[i]
		}
	}
	if p == NodesOnly || p == CloudOnly {
		for i := range chain {
			visit(at(i))
		}
		return
	}
	preferred := p == NodesFirst
	for _, side := range [...]bool{preferred, !preferred} {
		for i := range chain {
			if m := at(i); m.selfHosted == side {
				visit(m)
			}
		}
	}
}
