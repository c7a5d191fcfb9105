package trace

// nameCache remembers what is known of the names of attributes that were met last,
// wanted or not: the spans of a source have the same few dozen names over and over.
// What is kept is bounded, so names that are never met again cost time alone.
type nameCache [1 << nameBits][2]knownName

const (
	nameBits   = 8
	maxNameLen = 45 // of what is kept; no common name is longer
)

// knownName is a name, and what is known of it.
type knownName struct {
	len   uint8 // of the name; 0: nothing is kept here
	key   AttrKey
	flags Flags
	name  [maxNameLen]byte
}

// classify tells what [Attributes.See] says of a name.
func classify[T ~string | ~[]byte](a *Attributes, name T) (key AttrKey, flags Flags) {
	if len(name) == 0 || len(name) > maxNameLen {
		return lookUp(a, name)
	}
	if a.names == nil {
		a.names = new(nameCache)
	}
	pair := &a.names[nameHash(name)]
	for i := range pair {
		if k := &pair[i]; int(k.len) == len(name) && string(k.name[:len(name)]) == string(name) {
			return k.key, k.flags
		}
	}
	key, flags = lookUp(a, name)
	k := &pair[0]
	if k.len != 0 { // the older of two makes room
		pair[1] = *k
	}
	k.len, k.key, k.flags = uint8(len(name)), key, flags
	copy(k.name[:], name)
	return key, flags
}

// nameHash is made of both ends of a name, in which the names of a source differ,
// and of its length.
func nameHash[T ~string | ~[]byte](name T) uint32 {
	h := uint64(len(name))
	if n := len(name); n >= 8 {
		h ^= uint64(name[0]) | uint64(name[1])<<8 | uint64(name[2])<<16 | uint64(name[3])<<24 |
			uint64(name[4])<<32 | uint64(name[5])<<40 | uint64(name[6])<<48 | uint64(name[7])<<56
		h = h*0x9e3779b97f4a7c15 ^ (uint64(name[n-8]) | uint64(name[n-7])<<8 | uint64(name[n-6])<<16 | uint64(name[n-5])<<24 |
			uint64(name[n-4])<<32 | uint64(name[n-3])<<40 | uint64(name[n-2])<<48 | uint64(name[n-1])<<56)
	} else {
		for i := range n {
			h = h<<8 ^ uint64(name[i])
		}
	}
	return uint32(h * 0x9e3779b97f4a7c15 >> (64 - nameBits))
}
