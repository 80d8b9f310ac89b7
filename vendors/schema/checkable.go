package schema

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Bounds of a schema that answers are checked with. Checkers compile and walk without a limit of their own, and a
// request may hold one schema for each of 512 tools.
const (
	maxChecked      = 256 << 10
	maxCheckedNodes = 4000
)

// ErrTooLarge is what Checkable says of a schema that is sound and too large to check answers with.
var ErrTooLarge = errors.New("is too large to check answers with")

// Checkable rewrites a schema for a checker of answers: references are written out, so that each of its nodes is looked
// at once for a value, and nullable is said in types. What contains itself is checked down to its first repetition. An
// error means that the schema makes no sense, or is ErrTooLarge.
func Checkable(text []byte) ([]byte, error) {
	if len(text) > maxChecked {
		return nil, ErrTooLarge
	}
	s, err := Parse(text)
	if err != nil {
		return nil, tooLarge(err)
	}
	a := &adapter{rules: Rules{Inline: true}, budget: maxCheckedNodes}
	whole := maxCheckedNodes
	if a.root = s.root.clone(&whole); a.root == nil {
		return nil, ErrTooLarge
	}
	if err := a.schema(s.root, nil, false, 0); err != nil {
		return nil, tooLarge(err)
	}
	// Plain values are enough here: nobody sees the order.
	decoder := json.NewDecoder(bytes.NewReader(s.JSON()))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, err
	}
	return json.Marshal(normalize(tree))
}

// tooLarge tells a schema that is merely large from one that makes no sense.
func tooLarge(err error) error {
	if errors.Is(err, errDepth) || errors.Is(err, errLarge) || errors.Is(err, errExplodes) {
		return ErrTooLarge
	}
	return err
}
