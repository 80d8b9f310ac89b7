package storetest

import (
	"context"
	"strconv"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store"
)

var modelTests = []test{
	{"keep every field", testModelFields},
	{"replace and delete", testModelReplace},
	{"sort by id", testModelOrder},
}

var ruleTests = []test{
	{"keep every field", testRuleFields},
	{"are replaced as a whole", testRuleReplace},
	{"sort by falling priority", testRuleOrder},
}

func putModels(t testing.TB, s store.Store, models ...*ktmsv1.ModelSpec) store.Change {
	t.Helper()
	return update(t, s, func(ctx context.Context, tx store.Tx) error {
		for _, model := range models {
			if err := tx.PutModel(ctx, model); err != nil {
				return err
			}
		}
		return nil
	})
}

func replaceRules(t testing.TB, s store.Store, rules ...*ktmsv1.RuleSpec) store.Change {
	t.Helper()
	return update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.ReplaceRules(ctx, rules) })
}

func testModelFields(t *testing.T, opener Opener) {
	s := opener.open(t)
	full := new(ktmsv1.ModelSpec)
	fill(full.ProtoReflect(), 1)
	bare := &ktmsv1.ModelSpec{Id: "zzz"}
	putModels(t, s, full, bare)
	wantMessages(t, config(t, s).Models, []*ktmsv1.ModelSpec{full, bare})
}

func testModelReplace(t *testing.T, opener Opener) {
	s := opener.open(t)
	a, b := &ktmsv1.ModelSpec{Id: "a", Vendor: "openai", Rpm: 5}, &ktmsv1.ModelSpec{Id: "b"}
	putModels(t, s, a, b)
	a = &ktmsv1.ModelSpec{Id: "a", Vendor: "azure"}
	putModels(t, s, a)
	wantMessages(t, config(t, s).Models, []*ktmsv1.ModelSpec{a, b})

	update(t, s, func(ctx context.Context, tx store.Tx) error {
		wantErr(t, "delete an unknown model", tx.DeleteModel(ctx, "nobody"), store.ErrNotFound)
		return tx.DeleteModel(ctx, "a")
	})
	wantMessages(t, config(t, s).Models, []*ktmsv1.ModelSpec{b})
}

func testModelOrder(t *testing.T, opener Opener) {
	s := opener.open(t)
	var sorted []*ktmsv1.ModelSpec
	for _, id := range []string{"B", "a", "a-b", "aB", "b", "é"} {
		sorted = append(sorted, &ktmsv1.ModelSpec{Id: id})
	}
	putModels(t, s, sorted[3], sorted[5], sorted[0], sorted[4], sorted[2], sorted[1])
	wantMessages(t, config(t, s).Models, sorted)
}

func testRuleFields(t *testing.T, opener Opener) {
	s := opener.open(t)
	full := new(ktmsv1.RuleSpec)
	fill(full.ProtoReflect(), 1)
	bare := &ktmsv1.RuleSpec{Priority: full.GetPriority() - 1}
	replaceRules(t, s, full, bare)
	wantMessages(t, config(t, s).Rules, []*ktmsv1.RuleSpec{full, bare})
}

func testRuleReplace(t *testing.T, opener Opener) {
	s := opener.open(t)
	a, b, c := &ktmsv1.RuleSpec{Name: "a", Priority: 3}, &ktmsv1.RuleSpec{Name: "b", Priority: 2},
		&ktmsv1.RuleSpec{Name: "c", Priority: 1}
	replaceRules(t, s, a, b, c)
	replaceRules(t, s, c)
	wantMessages(t, config(t, s).Rules, []*ktmsv1.RuleSpec{c})
	emptied := replaceRules(t, s)
	wantMessages(t, config(t, s).Rules, nil)
	if again := replaceRules(t, s); again.Version != emptied.Version {
		t.Errorf("replacing nothing by nothing raised the version from %d to %d", emptied.Version, again.Version)
	}
}

func testRuleOrder(t *testing.T, opener Opener) {
	s := opener.open(t)
	rule := func(name string, priority int32) *ktmsv1.RuleSpec {
		return &ktmsv1.RuleSpec{Name: name, Priority: priority}
	}
	low, high := rule("low", -1<<31), rule("high", 1<<31-1)
	first, second := rule("z-first", 0), rule("a-second", 0)
	replaceRules(t, s, low, first, high, second)
	wantMessages(t, config(t, s).Rules, []*ktmsv1.RuleSpec{high, first, second, low})
}

// fill sets every field, also those that are added later, to a value that differs from its default and its neighbours.
func fill(message protoreflect.Message, seed int) {
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		seed++
		switch {
		case field.IsMap():
			entry := message.Mutable(field).Map()
			entry.Set(sample(field.MapKey(), seed).MapKey(), sample(field.MapValue(), seed+1))
		case field.IsList():
			list := message.Mutable(field).List()
			for n := range 2 {
				if field.Message() != nil {
					fill(list.AppendMutable().Message(), seed+n)
				} else {
					list.Append(sample(field, seed+n))
				}
			}
		case field.Message() != nil:
			fill(message.Mutable(field).Message(), seed)
		default:
			message.Set(field, sample(field, seed))
		}
	}
}

func sample(field protoreflect.FieldDescriptor, seed int) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		values := field.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(1 + seed%(values.Len()-1)).Number())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(seed))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1<<60 + int64(seed))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(seed) / 7)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(strconv.Itoa(seed) + ` "quoted" \ 'ünï'`)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0, 0xff, byte(seed)})
	}
	panic("a kind of field that the suite does not know yet: " + field.Kind().String())
}
