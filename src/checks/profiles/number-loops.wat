;; Loops over float64 numbers, for number-loops.ts. Addresses are bytes.
;;
;; 0x0000000  bins: how many numbers (i32) have these upper 22 bits (sign, exponent, 10 bits of the fraction)
;; 0x1000000  sums by sign and exponent (4,096): of the fractions' upper 21 bits (i64) and of their lower 32 (i64)
;; 0x1010000  the same of the numbers' squares (2,048: no sign)
;; 0x1018000  how many numbers are NaN, infinite, -infinite (i32 each)
;; 0x101800c  different numbers in the table (i32)
;; 0x1018010  the least and the greatest finite number (f64 each)
;; 0x1018020  the shift of the bins that `takeBins` lists (i32)
;; 0x1018040  bins by the highest bit in which their key differs from the key of the bin before (33 i32)
;; 0x1018100  the keys (1,024 i32) and the counts (1,024 i32) that `takeBins` lists
;; 0x1020000  a hash table of different numbers: 1,024 slots of a number (f64) and how often it came (i64), 0 if free
;; 0x1024000  the numbers to add (4,096 f64)
;; 0x102c000  places of the bins that hold something (i32), by ascending key: the first 4,096
;; 0x1030000  what `takeSums` took: of positive numbers, of negative ones, of squares, in units of 2^-1074, the lowest 64
;;            bits first (36 i64 each, then the first one that is not 0, as an i32, and the one after the last)
(module
  (memory (export "memory") 262) ;; pages of 64 KiB: of no cost before they are written to

  ;; Counts a number that is NaN or infinite.
  (func $addNotFinite (param $x f64)
    (local $at i32)
    (local.set $at
      (select (i32.const 0x1018000)
        (select (i32.const 0x1018004) (i32.const 0x1018008) (f64.gt (local.get $x) (f64.const 0)))
        (f64.ne (local.get $x) (local.get $x))))
    (i32.store (local.get $at) (i32.add (i32.load (local.get $at)) (i32.const 1))))

  ;; Adds the fraction of a number, and `times` the same, to the sums at `sums`.
  (func $addFraction (param $sums i32) (param $bits i64) (param $times i64)
    (local $at i32)
    (local.set $at
      (i32.add (local.get $sums) (i32.shl (i32.wrap_i64 (i64.shr_u (local.get $bits) (i64.const 52))) (i32.const 4))))
    (i64.store (local.get $at)
      (i64.add (i64.load (local.get $at))
        (i64.mul (local.get $times)
          (i64.or (i64.and (i64.shr_u (local.get $bits) (i64.const 32)) (i64.const 0xfffff)) (i64.const 0x100000)))))
    (i64.store offset=8 (local.get $at)
      (i64.add (i64.load offset=8 (local.get $at))
        (i64.mul (local.get $times) (i64.and (local.get $bits) (i64.const 0xffffffff))))))

  ;; Adds a finite number that came `times` times; its zero has no sign.
  (func $addTimes (param $x f64) (param $times i64)
    (local $bits i64) (local $at i32)
    (local.set $bits (i64.reinterpret_f64 (local.get $x)))
    (local.set $at (i32.shl (i32.wrap_i64 (i64.shr_u (local.get $bits) (i64.const 42))) (i32.const 2)))
    (i32.store (local.get $at) (i32.add (i32.load (local.get $at)) (i32.wrap_i64 (local.get $times))))
    (call $addFraction (i32.const 0x1000000) (local.get $bits) (local.get $times))
    (call $addFraction (i32.const 0x1010000)
      (i64.reinterpret_f64 (f64.mul (local.get $x) (local.get $x))) (local.get $times))
    (if (f64.lt (local.get $x) (f64.load (i32.const 0x1018010)))
      (then (f64.store (i32.const 0x1018010) (local.get $x))))
    (if (f64.gt (local.get $x) (f64.load (i32.const 0x1018018)))
      (then (f64.store (i32.const 0x1018018) (local.get $x)))))

  ;; Adds the numbers in [at, end). `$addTimes` is written out: V8 of Node 20 would call it for each number.
  (func (export "addNumbers") (param $at i32) (param $end i32)
    (local $x f64) (local $bits i64) (local $word i32) (local $place i32) (local $least f64) (local $greatest f64)
    (local.set $least (f64.load (i32.const 0x1018010)))
    (local.set $greatest (f64.load (i32.const 0x1018018)))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $at) (local.get $end)))
        (local.set $x (f64.add (f64.load (local.get $at)) (f64.const 0))) ;; -0 becomes 0
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (local.set $bits (i64.reinterpret_f64 (local.get $x)))
        (local.set $word (i32.wrap_i64 (i64.shr_u (local.get $bits) (i64.const 32))))
        (if (i32.eq (i32.and (local.get $word) (i32.const 0x7ff00000)) (i32.const 0x7ff00000))
          (then
            (call $addNotFinite (local.get $x))
            (br $next)))
        (local.set $place (i32.and (i32.shr_u (local.get $word) (i32.const 8)) (i32.const -4)))
        (i32.store (local.get $place) (i32.add (i32.load (local.get $place)) (i32.const 1)))
        (local.set $place (i32.and (i32.shr_u (local.get $word) (i32.const 16)) (i32.const -16)))
        (i64.store offset=0x1000000 (local.get $place)
          (i64.add (i64.load offset=0x1000000 (local.get $place))
            (i64.extend_i32_u (i32.or (i32.and (local.get $word) (i32.const 0xfffff)) (i32.const 0x100000)))))
        (i64.store offset=0x1000008 (local.get $place)
          (i64.add (i64.load offset=0x1000008 (local.get $place)) (i64.and (local.get $bits) (i64.const 0xffffffff))))
        (if (f64.lt (local.get $x) (local.get $least)) (then (local.set $least (local.get $x))))
        (if (f64.gt (local.get $x) (local.get $greatest)) (then (local.set $greatest (local.get $x))))
        (local.set $bits (i64.reinterpret_f64 (f64.mul (local.get $x) (local.get $x))))
        (local.set $word (i32.wrap_i64 (i64.shr_u (local.get $bits) (i64.const 32))))
        (local.set $place (i32.and (i32.shr_u (local.get $word) (i32.const 16)) (i32.const -16)))
        (i64.store offset=0x1010000 (local.get $place)
          (i64.add (i64.load offset=0x1010000 (local.get $place))
            (i64.extend_i32_u (i32.or (i32.and (local.get $word) (i32.const 0xfffff)) (i32.const 0x100000)))))
        (i64.store offset=0x1010008 (local.get $place)
          (i64.add (i64.load offset=0x1010008 (local.get $place)) (i64.and (local.get $bits) (i64.const 0xffffffff))))
        (br $next)))
    (f64.store (i32.const 0x1018010) (local.get $least))
    (f64.store (i32.const 0x1018018) (local.get $greatest)))

  ;; Counts the numbers in [at, end) by value for as long as at most `limit` (below 1,024) of them differ. Returns `end`,
  ;; or the address of the number that is one too many.
  (func (export "countFew") (param $at i32) (param $end i32) (param $limit i32) (result i32)
    (local $x f64) (local $slot i32) (local $size i32)
    (local.set $size (i32.load (i32.const 0x101800c)))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $at) (local.get $end)))
        (local.set $x (f64.add (f64.load (local.get $at)) (f64.const 0)))
        (if (f64.ne (f64.sub (local.get $x) (local.get $x)) (f64.const 0))
          (then (call $addNotFinite (local.get $x)))
          (else
            (local.set $slot
              (i32.wrap_i64
                (i64.shl
                  (i64.shr_u
                    (i64.mul (i64.reinterpret_f64 (local.get $x)) (i64.const 0x9e3779b97f4a7c15)) (i64.const 54))
                  (i64.const 4))))
            (block $found
              (loop $closer
                (br_if $found (i64.eqz (i64.load offset=0x1020008 (local.get $slot))))
                (br_if $found (f64.eq (f64.load offset=0x1020000 (local.get $slot)) (local.get $x)))
                (local.set $slot (i32.and (i32.add (local.get $slot) (i32.const 16)) (i32.const 0x3ff0)))
                (br $closer)))
            (if (i64.eqz (i64.load offset=0x1020008 (local.get $slot)))
              (then
                (br_if $through (i32.eq (local.get $size) (local.get $limit)))
                (local.set $size (i32.add (local.get $size) (i32.const 1)))
                (f64.store offset=0x1020000 (local.get $slot) (local.get $x))))
            (i64.store offset=0x1020008 (local.get $slot)
              (i64.add (i64.load offset=0x1020008 (local.get $slot)) (i64.const 1)))))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (br $next)))
    (i32.store (i32.const 0x101800c) (local.get $size))
    (local.get $at))

  ;; Moves what `countFew` counted to the sums and bins.
  (func (export "addFew")
    (local $slot i32) (local $times i64)
    (loop $next
      (local.set $times (i64.load offset=0x1020008 (local.get $slot)))
      (if (i64.ne (local.get $times) (i64.const 0))
        (then
          (call $addTimes (f64.load offset=0x1020000 (local.get $slot)) (local.get $times))
          (i64.store offset=0x1020008 (local.get $slot) (i64.const 0))))
      (local.set $slot (i32.add (local.get $slot) (i32.const 16)))
      (br_if $next (i32.lt_u (local.get $slot) (i32.const 0x4000))))
    (i32.store (i32.const 0x101800c) (i32.const 0)))

  ;; Empties both tables of sums into three whole numbers: of positive numbers, of negative ones, of squares.
  (func (export "takeSums")
    (local $place i32) (local $at i32) (local $to i32) (local $exponent i32)
    (memory.fill (i32.const 0x1030000) (i32.const 0) (i32.const 1728))
    (loop $next
      (local.set $at (i32.shl (local.get $place) (i32.const 4)))
      ;; Each number adds 2^20 at least to the upper bits.
      (if (i64.ne (i64.load offset=0x1000000 (local.get $at)) (i64.const 0))
        (then
          (local.set $exponent (i32.and (local.get $place) (i32.const 2047)))
          (local.set $to
            (i32.add (i32.const 0x1030000) (i32.mul (i32.shr_u (local.get $place) (i32.const 11)) (i32.const 576))))
          (if (local.get $exponent) ;; smaller numbers count as zero
            (then
              (call $addAt (local.get $to) (i64.load offset=0x1000008 (local.get $at))
                (i32.sub (local.get $exponent) (i32.const 1)))
              (call $addAt (local.get $to) (i64.load offset=0x1000000 (local.get $at))
                (i32.add (local.get $exponent) (i32.const 31)))))
          (i64.store offset=0x1000000 (local.get $at) (i64.const 0))
          (i64.store offset=0x1000008 (local.get $at) (i64.const 0))))
      (local.set $place (i32.add (local.get $place) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $place) (i32.const 6144))))
    (call $carry (i32.const 0x1030000))
    (call $carry (i32.const 0x1030240))
    (call $carry (i32.const 0x1030480)))

  ;; Adds a number, shifted by some bits, to 72 numbers (i64) of 32 bits each without their carries.
  (func $addAt (param $to i32) (param $x i64) (param $shift i32)
    (local $by i64)
    (local.set $to (i32.add (local.get $to) (i32.shl (i32.shr_u (local.get $shift) (i32.const 5)) (i32.const 3))))
    (local.set $by (i64.extend_i32_u (i32.and (local.get $shift) (i32.const 31))))
    (i64.store (local.get $to)
      (i64.add (i64.load (local.get $to))
        (i64.and (i64.shl (local.get $x) (local.get $by)) (i64.const 0xffffffff))))
    (local.set $by (i64.sub (i64.const 32) (local.get $by)))
    (i64.store offset=8 (local.get $to)
      (i64.add (i64.load offset=8 (local.get $to))
        (i64.and (i64.shr_u (local.get $x) (local.get $by)) (i64.const 0xffffffff))))
    (i64.store offset=16 (local.get $to)
      (i64.add (i64.load offset=16 (local.get $to))
        (i64.shr_u (i64.shr_u (local.get $x) (i64.const 32)) (local.get $by)))))

  ;; Makes 36 numbers of 64 bits of 72 such numbers.
  (func $carry (param $at i32)
    (local $from i32) (local $to i32) (local $low i64) (local $high i64) (local $index i32) (local $last i32)
    (local $first i32)
    (local.set $from (local.get $at))
    (local.set $to (local.get $at))
    (loop $next
      (local.set $low (i64.add (i64.load (local.get $from)) (i64.shr_u (local.get $high) (i64.const 32))))
      (local.set $high (i64.add (i64.load offset=8 (local.get $from)) (i64.shr_u (local.get $low) (i64.const 32))))
      (local.set $low
        (i64.or (i64.and (local.get $low) (i64.const 0xffffffff)) (i64.shl (local.get $high) (i64.const 32))))
      (i64.store (local.get $to) (local.get $low))
      (local.set $index (i32.add (local.get $index) (i32.const 1)))
      (if (i64.ne (local.get $low) (i64.const 0))
        (then
          (if (i32.eqz (local.get $last))
            (then (local.set $first (i32.sub (local.get $index) (i32.const 1)))))
          (local.set $last (local.get $index))))
      (local.set $to (i32.add (local.get $to) (i32.const 8)))
      (local.set $from (i32.add (local.get $from) (i32.const 16)))
      (br_if $next (i32.lt_u (local.get $index) (i32.const 36))))
    (i32.store offset=288 (local.get $at) (local.get $first))
    (i32.store offset=292 (local.get $at) (local.get $last)))

  ;; Takes the bin at a place: lists its key and its count after those of `bins` others, or adds it to the last of them if
  ;; both have one key after the shift. The bin is empty afterwards. Returns how many bins are listed.
  (func $takeBin (param $at i32) (param $shift i32) (param $bins i32) (result i32)
    (local $key i32) (local $next i32)
    (local.set $key (i32.shr_s (call $keyOf (local.get $at)) (local.get $shift)))
    (local.set $next (i32.shl (local.get $bins) (i32.const 2)))
    (if (i32.or (i32.eqz (local.get $bins)) (i32.ne (i32.load offset=0x10180fc (local.get $next)) (local.get $key)))
      (then
        (i32.store offset=0x1018100 (local.get $next) (local.get $key))
        (i32.store offset=0x1019100 (local.get $next) (i32.const 0))
        (local.set $bins (i32.add (local.get $bins) (i32.const 1)))
        (local.set $next (i32.shl (local.get $bins) (i32.const 2)))))
    (local.set $at (i32.shl (local.get $at) (i32.const 2)))
    (i32.store offset=0x10190fc (local.get $next)
      (i32.add (i32.load offset=0x10190fc (local.get $next)) (i32.load (local.get $at))))
    (i32.store (local.get $at) (i32.const 0))
    (local.get $bins))

  ;; The key of the bin at a place, of 21 bits. Those of negative numbers are the others' complements.
  (func $keyOf (param $at i32) (result i32)
    (i32.xor
      (i32.and (local.get $at) (i32.const 0x1fffff))
      (i32.sub (i32.const 0) (i32.shr_u (local.get $at) (i32.const 21)))))

  ;; Goes through the bins that hold something by ascending key. While `shift` is -1, it counts the bits in which
  ;; neighbours differ, and lists places; else it lists keys and counts, those that have one key after the shift as one
  ;; bin, and empties the bins. Returns how many bins there are, or were listed.
  (func $walkBins (param $shift i32) (result i32)
    (local $step i32) (local $end i32) (local $place i32) (local $sign i32) (local $some i32) (local $at i32)
    (local $mask i32) (local $key i32) (local $last i32) (local $bins i32) (local $to i32)
    ;; Negative numbers come first, the greatest exponent first of all: from the least number to the greatest.
    (local.set $at (i32.wrap_i64 (i64.shr_u (i64.load (i32.const 0x1018010)) (i64.const 52))))
    (local.set $step
      (select (i32.sub (i32.const 4095) (local.get $at)) (i32.const 2048) (i32.ge_u (local.get $at) (i32.const 2048))))
    (local.set $at (i32.wrap_i64 (i64.shr_u (i64.load (i32.const 0x1018018)) (i64.const 52))))
    (local.set $end
      (select (i32.add (i32.const 2049) (local.get $at)) (i32.const 2048) (i32.lt_u (local.get $at) (i32.const 2048))))
    (block $through
      (loop $nextPlace
        (br_if $through (i32.ge_u (local.get $step) (local.get $end)))
        (local.set $sign (select (i32.const -1) (i32.const 0) (i32.lt_u (local.get $step) (i32.const 2048))))
        (local.set $place
          (i32.xor (i32.xor (local.get $step) (i32.const 2048)) (i32.and (local.get $sign) (i32.const 2047))))
        (local.set $step (i32.add (local.get $step) (i32.const 1)))
        (br_if $nextPlace
          (i64.eqz (i64.load offset=0x1000000 (i32.shl (local.get $place) (i32.const 4)))))
        (local.set $some (i32.const 0))
        (loop $nextSome
          ;; Most are empty: 16 at a time.
          (local.set $at
            (i32.or
              (i32.shl (local.get $place) (i32.const 10))
              (i32.xor (local.get $some) (i32.and (local.get $sign) (i32.const 1008)))))
          (local.set $mask (call $maskOf (i32.shl (local.get $at) (i32.const 2))))
          (block $empty
            (loop $nextBin
              (br_if $empty (i32.eqz (local.get $mask)))
              (local.set $to
                (select
                  (i32.sub (i32.const 31) (i32.clz (local.get $mask)))
                  (i32.ctz (local.get $mask))
                  (local.get $sign)))
              (local.set $mask (i32.xor (local.get $mask) (i32.shl (i32.const 1) (local.get $to))))
              (local.set $to (i32.add (local.get $at) (local.get $to)))
              (if (i32.eq (local.get $shift) (i32.const -1))
                (then
                  (if (i32.lt_u (local.get $bins) (i32.const 4096))
                    (then (i32.store offset=0x102c000 (i32.shl (local.get $bins) (i32.const 2)) (local.get $to))))
                  (local.set $key (call $keyOf (local.get $to)))
                  (if (local.get $bins)
                    (then
                      (local.set $to
                        (i32.shl
                          (i32.sub (i32.const 32) (i32.clz (i32.xor (local.get $key) (local.get $last))))
                          (i32.const 2)))
                      (i32.store offset=0x1018040 (local.get $to)
                        (i32.add (i32.load offset=0x1018040 (local.get $to)) (i32.const 1)))))
                  (local.set $last (local.get $key))
                  (local.set $bins (i32.add (local.get $bins) (i32.const 1))))
                (else (local.set $bins (call $takeBin (local.get $to) (local.get $shift) (local.get $bins)))))
              (br $nextBin)))
          (local.set $some (i32.add (local.get $some) (i32.const 16)))
          (br_if $nextSome (i32.lt_u (local.get $some) (i32.const 1024))))
        (br $nextPlace)))
    (local.get $bins))

  ;; Which of the 16 numbers (i32) at an address are not 0: a bit for each, the lowest bit for the first.
  (func $maskOf (param $at i32) (result i32)
    (local $zero v128)
    (i8x16.bitmask
      (i8x16.narrow_i16x8_s
        (i16x8.narrow_i32x4_s
          (i32x4.ne (v128.load (local.get $at)) (local.get $zero))
          (i32x4.ne (v128.load offset=16 (local.get $at)) (local.get $zero)))
        (i16x8.narrow_i32x4_s
          (i32x4.ne (v128.load offset=32 (local.get $at)) (local.get $zero))
          (i32x4.ne (v128.load offset=48 (local.get $at)) (local.get $zero))))))

  ;; Lists keys and counts of the bins, as many as two by two become one until they are `limit` (1,024) at most, and
  ;; returns how many they are. The sums are those of the same numbers; bins are empty afterwards, sums are not.
  (func (export "takeBins") (param $limit i32) (result i32)
    (local $all i32) (local $bins i32) (local $shift i32) (local $at i32)
    (memory.fill (i32.const 0x1018040) (i32.const 0) (i32.const 132))
    (local.set $all (call $walkBins (i32.const -1)))
    (local.set $bins (local.get $all))
    (block $fit
      (loop $coarser
        (br_if $fit (i32.le_u (local.get $bins) (local.get $limit)))
        (local.set $shift (i32.add (local.get $shift) (i32.const 1)))
        (local.set $bins
          (i32.sub (local.get $bins) (i32.load offset=0x1018040 (i32.shl (local.get $shift) (i32.const 2)))))
        (br $coarser)))
    (i32.store (i32.const 0x1018020) (local.get $shift))
    (if (i32.gt_u (local.get $all) (i32.const 4096)) (then (return (call $walkBins (local.get $shift)))))
    (local.set $bins (i32.const 0))
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $at) (local.get $all)))
        (local.set $bins
          (call $takeBin
            (i32.load offset=0x102c000 (i32.shl (local.get $at) (i32.const 2)))
            (local.get $shift) (local.get $bins)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next)))
    (local.get $bins))
)
