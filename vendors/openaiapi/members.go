package openaiapi

import "slices"

import "encoding/json"

// Member is one member of a JSON object, its value as it was written.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Members are members of a JSON object, in order. A name may stand twice, as it did in the text.
type Members []Member

// ParseMembers reads a JSON object.
func ParseMembers(object []byte) (Members, error) {
	d := newDecoder(object, false)
	if d.kind() != '{' {
		d.skip()
		if d.err == nil {
			d.err = &TypeError{Want: "an object"}
		}
		return nil, d.err
	}
	var m Members
	d.enter()
	for d.member() {
		m = append(m, Member{string(d.name()), d.raw()})
	}
	return m, d.end()
}

// Get returns the value of the last member of that name, nil when there is none.
func (m Members) Get(name string) json.RawMessage {
	for _, v := range slices.Backward(m) {
		if v.Name == name {
			return v.Value
		}
	}
	return nil
}

// Take removes every member of that name and returns the value of the last, nil when there was none.
func (m *Members) Take(name string) json.RawMessage {
	value := m.Get(name)
	if value == nil {
		return nil
	}
	kept := make(Members, 0, len(*m)-1)
	for _, member := range *m {
		if member.Name != name {
			kept = append(kept, member)
		}
	}
	if *m = kept; len(kept) == 0 {
		*m = nil
	}
	return value
}

// Add appends a member.
func (m *Members) Add(name string, value json.RawMessage) { *m = append(*m, Member{name, value}) }

// JSON returns the members as one object, and "" when there are none.
func (m Members) JSON() string {
	if len(m) == 0 {
		return ""
	}
	return string(m.AppendJSON(nil))
}

// AppendJSON appends the members as one object.
func (m Members) AppendJSON(dst []byte) []byte { return append(m.appendTo(append(dst, '{')), '}') }

// appendTo appends the members to an object that stands open in dst.
func (m Members) appendTo(dst []byte) []byte {
	for _, member := range m {
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, member.Name)
		dst = append(dst, ':')
		dst = append(dst, member.Value...)
	}
	return dst
}
