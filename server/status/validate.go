package status

import (
	"errors"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
)

// Validator checks messages against the rules beside their fields. Its rules are compiled once, at start.
type Validator struct{ inner protovalidate.Validator }

// NewValidator compiles the rules of the given messages; others are compiled when they are first seen.
func NewValidator(messages ...proto.Message) (*Validator, error) {
	inner, err := protovalidate.New(protovalidate.WithMessages(messages...))
	if err != nil {
		return nil, err
	}
	return &Validator{inner}, nil
}

// Validate returns every mistake of a message at once, each with its path, or nil.
func (v *Validator) Validate(message proto.Message) error {
	err := v.inner.Validate(message)
	if err == nil {
		return nil
	}
	var invalid *protovalidate.ValidationError
	if !errors.As(err, &invalid) {
		return err
	}
	violations := make([]Violation, 0, len(invalid.Violations))
	for _, found := range invalid.Violations {
		violations = append(violations, Violation{
			Path: protovalidate.FieldPathString(found.Proto.GetField()),
			Text: found.Proto.GetMessage(),
		})
	}
	e := Invalid(violations)
	e.Details = append(e.Details, invalid.ToProto())
	return e
}
