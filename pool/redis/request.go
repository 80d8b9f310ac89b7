package redis

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

// request is what a script is given. Its words are written one after the other and cut into strings at once, which
// costs one allocation for all of them.
type request struct {
	spell      keys
	keys, args words
}

type words struct {
	text []byte
	ends []int
	cut  []string
}

// requestPool keeps requests to be used again.
type requestPool struct{ pool sync.Pool }

func (r *requestPool) get(spell keys) *request {
	if used, ok := r.pool.Get().(*request); ok {
		used.spell = spell
		return used
	}
	return &request{spell: spell}
}

// put takes back what nobody uses any more.
func (r *requestPool) put(used *request) { r.pool.Put(used) }

// begin forgets the former content.
func (r *request) begin() {
	r.keys.clear()
	r.args.clear()
}

func (r *request) done(id pool.ID) {
	r.keys.end(r.spell.done(r.keys.text, id))
}

func (r *request) rate(key string) {
	r.keys.end(r.spell.rate(r.keys.text, key))
}

func (r *request) window(key string, start int64) {
	r.keys.end(r.spell.sums(r.keys.text, key, start))
	r.keys.end(r.spell.leases(r.keys.text, key, start))
}

// node asks for keys of a node, of these kinds.
func (r *request) node(id string, kinds ...string) {
	for _, kind := range kinds {
		r.keys.end(r.spell.node(r.keys.text, kind, id))
	}
}

func (r *request) turn(model string) {
	r.keys.end(r.spell.turn(r.keys.text, model))
}

// prefixes are spelled the deepest first.
func (r *request) prefixes(prefixes []selection.Prefix) {
	for _, p := range slices.Backward(prefixes) {
		r.keys.end(r.spell.prefix(r.keys.text, p.Key))
	}
}

func (r *request) released(id pool.ID) {
	r.keys.end(r.spell.released(r.keys.text, id))
}

// registry are the keys that every script of the registry has.
func (r *request) registry(id string) {
	r.key(r.spell.nodes())
	r.key(r.spell.removed())
	r.node(id, kindFleet, kindLoad, kindInflight, kindLease, kindIdle, kindSpeed)
}

func (r *request) key(key string) {
	r.keys.end(append(r.keys.text, key...))
}

// fraction is the shortest text that reads back as the same number.
func (r *request) fraction(x float64) {
	r.args.end(strconv.AppendFloat(r.args.text, x, 'g', -1, 64))
}

// name is a node or a generation as a text of several has them: without spaces, which stand between them, and no number.
func (r *request) name(name string) {
	r.args.text = append(r.args.text, '=')
	if strings.ContainsAny(name, " %") {
		name = strings.NewReplacer("%", "%25", " ", "%20").Replace(name)
	}
	r.word(name)
}

// flag is a word where it holds, and none otherwise.
func (r *request) flag(holds bool, word string) {
	if !holds {
		word = ""
	}
	r.word(word)
}

func (r *request) word(text string) {
	r.args.end(append(r.args.text, text...))
}

func (r *request) numbers(numbers ...int64) {
	for _, n := range numbers {
		r.args.end(strconv.AppendInt(r.args.text, n, 10))
	}
}

// lease is a member of a window's leases.
func (r *request) lease(amount int64, id pool.ID) {
	r.args.end(append(append(strconv.AppendInt(r.args.text, amount, 10), ':'), id...))
}

func (w *words) clear() { w.text, w.ends = w.text[:0], w.ends[:0] }

// end takes the text with one more word at its end.
func (w *words) end(text []byte) {
	w.text = text
	w.ends = append(w.ends, len(text))
}

// strings are valid until the next call.
func (w *words) strings() []string {
	text, from := string(w.text), 0
	w.cut = w.cut[:0]
	for _, to := range w.ends {
		w.cut = append(w.cut, text[from:to])
		from = to
	}
	return w.cut
}
