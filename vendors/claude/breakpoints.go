package claude

// MaxBreakpoints is how many breakpoints of the prompt cache one request may have.
const MaxBreakpoints = 4

// Lifetime is how long what a breakpoint caches lasts.
type Lifetime int

// The lifetimes.
const (
	None Lifetime = iota
	FiveMinutes
	Hour
)

// Place is where a breakpoint can stand. The places of a request are in the order of its prompt: tools, system, messages.
type Place struct {
	// Head: among the tools or in the system text.
	Head bool
	// Set is the breakpoint that stands there.
	Set Lifetime
}

// Trim holds the breakpoints to the vendor's rules: no more than it takes, and those of an hour first. It takes away what
// breaks them and reports whether anything did. Of too many it keeps those of the head, which all requests share, and the
// last of the conversation, which the next request goes on from.
func Trim(places []Place) (dropped bool) {
	short := false
	head, rest := 0, 0
	for i := range places {
		p := &places[i]
		switch {
		case p.Set == Hour && short:
			p.Set, dropped = None, true
			continue
		case p.Set == None:
			continue
		case p.Set == FiveMinutes:
			short = true
		}
		if p.Head {
			head++
		} else {
			rest++
		}
	}
	keepHead := min(head, MaxBreakpoints)
	if rest > 0 {
		keepHead = min(head, MaxBreakpoints-1)
	}
	keepRest := min(rest, MaxBreakpoints-keepHead)
	for i := range places {
		p := &places[i]
		if p.Set == None {
			continue
		}
		left, keep := &rest, keepRest
		if p.Head {
			left, keep = &head, keepHead
		}
		if *left > keep {
			p.Set, dropped = None, true
		}
		*left--
	}
	return dropped
}

// Add sets breakpoints of five minutes at the wanted places, the first one first, as far as the rules leave room. An index
// below 0 is no place.
func Add(places []Place, wanted ...int) {
	count, lastHour := 0, -1
	for i, p := range places {
		if p.Set != None {
			count++
		}
		if p.Set == Hour {
			lastHour = i
		}
	}
	for _, i := range wanted {
		if count < MaxBreakpoints && i > lastHour && i < len(places) && places[i].Set == None {
			places[i].Set = FiveMinutes
			count++
		}
	}
}
