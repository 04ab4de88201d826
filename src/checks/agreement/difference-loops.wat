;; Compares two blocks of float64 numbers, for difference-loops.ts. Addresses are bytes, and a block has 4,096 numbers.
;;
;; 0x00000  one
;; 0x08000  other
;; 0x10000  the numbers of the rows (f64)
;; 0x18000  finite differences (f64), in the order of the rows
;; 0x20000  indices of rows that differ by `least` or more, but not by 0 (i32)
;; 0x24000  indices of rows in the sample (i32)
;; 0x28000  how many differences are finite, how many rows differ by more than the tolerance, how many indices there
;;          are of rows that differ, and of the sample (i32 each)
(module
  (memory (export "memory") 3)

  ;; Numbers `count` rows that follow on each other, and one more if `count` is odd.
  (func (export "countFrom") (param $first f64) (param $count i32)
    (local $at i32) (local $end i32) (local $rows v128)
    (local.set $end (i32.shl (local.get $count) (i32.const 3)))
    (local.set $rows (f64x2.add (f64x2.splat (local.get $first)) (v128.const f64x2 0 1)))
    (block $through
      (loop $next
        (br_if $through (i32.ge_u (local.get $at) (local.get $end)))
        (v128.store offset=0x10000 (local.get $at) (local.get $rows))
        (local.set $rows (f64x2.add (local.get $rows) (v128.const f64x2 2 2)))
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (br $next))))

  ;; Compares the first `count` numbers, two at a time: of a bit for each, the lower one is the first one's.
  (func (export "compare") (param $count i32) (param $tolerance f64) (param $least f64)
    (local $index i32) (local $at i32) (local $to i32) (local $x v128) (local $y v128) (local $distance v128)
    (local $isFinite v128) (local $bits i32) (local $beyond i32) (local $different i32)
    (if (i32.and (local.get $count) (i32.const 1))
      (then ;; two equal numbers make it even; their difference is not counted
        (local.set $at (i32.shl (local.get $count) (i32.const 3)))
        (f64.store (local.get $at) (f64.const 0))
        (f64.store offset=0x8000 (local.get $at) (f64.const 0))))
    (block $through
      (loop $next
        (br_if $through (i32.ge_u (local.get $index) (local.get $count)))
        (local.set $at (i32.shl (local.get $index) (i32.const 3)))
        (local.set $x (v128.load (local.get $at)))
        (local.set $y (v128.load offset=0x8000 (local.get $at)))
        (local.set $distance (f64x2.abs (f64x2.sub (local.get $x) (local.get $y))))
        (local.set $isFinite (f64x2.lt (local.get $distance) (v128.const f64x2 inf inf)))
        (local.set $bits (i64x2.bitmask (local.get $isFinite)))
        (v128.store64_lane offset=0x18000 0 (local.get $to) (local.get $distance))
        (local.set $to (i32.add (local.get $to) (i32.shl (i32.and (local.get $bits) (i32.const 1)) (i32.const 3))))
        (v128.store64_lane offset=0x18000 1 (local.get $to) (local.get $distance))
        (local.set $to (i32.add (local.get $to) (i32.shl (i32.shr_u (local.get $bits) (i32.const 1)) (i32.const 3))))
        (if (i32.ne (local.get $bits) (i32.const 3))
          (then ;; numbers that are not finite differ by 0 if they are equal or both NaN, else by infinity
            (local.set $distance
              (v128.bitselect
                (local.get $distance)
                (v128.andnot
                  (v128.const f64x2 inf inf)
                  (v128.or
                    (f64x2.eq (local.get $x) (local.get $y))
                    (v128.and
                      (f64x2.ne (local.get $x) (local.get $x))
                      (f64x2.ne (local.get $y) (local.get $y)))))
                (local.get $isFinite)))))
        (local.set $beyond
          (i32.add (local.get $beyond)
            (i32.popcnt (i64x2.bitmask (f64x2.gt (local.get $distance) (f64x2.splat (local.get $tolerance)))))))
        (local.set $bits
          (i64x2.bitmask
            (v128.and
              (f64x2.gt (local.get $distance) (v128.const f64x2 0 0))
              (f64x2.ge (local.get $distance) (f64x2.splat (local.get $least))))))
        (if (local.get $bits)
          (then
            (i32.store offset=0x20000 (i32.shl (local.get $different) (i32.const 2)) (local.get $index))
            (local.set $different (i32.add (local.get $different) (i32.and (local.get $bits) (i32.const 1))))
            (i32.store offset=0x20000 (i32.shl (local.get $different) (i32.const 2))
              (i32.add (local.get $index) (i32.const 1)))
            (local.set $different (i32.add (local.get $different) (i32.shr_u (local.get $bits) (i32.const 1))))))
        (local.set $index (i32.add (local.get $index) (i32.const 2)))
        (br $next)))
    (i32.store (i32.const 0x28000)
      (i32.sub (i32.shr_u (local.get $to) (i32.const 3)) (i32.and (local.get $count) (i32.const 1))))
    (i32.store (i32.const 0x28004) (local.get $beyond))
    (i32.store (i32.const 0x28008) (local.get $different)))

  ;; Lists which of the first `count` rows are in the sample, if their difference is finite. `mask`: bits that are 0 in
  ;; the hash of the number of each row in the sample.
  (func (export "sample") (param $count i32) (param $mask i32)
    (local $index i32) (local $at i32) (local $row i64) (local $upper i32) (local $hash i32) (local $sampled i32)
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $index) (local.get $count)))
        (local.set $at (i32.shl (local.get $index) (i32.const 3)))
        (local.set $row (i64.trunc_sat_f64_u (f64.load offset=0x10000 (local.get $at))))
        (local.set $upper (i32.wrap_i64 (i64.shr_u (local.get $row) (i64.const 32))))
        (local.set $hash
          (i32.xor (i32.wrap_i64 (local.get $row))
            (if (result i32) (local.get $upper)
              (then (call $mix (local.get $upper)))
              (else (i32.const 0x9e3779b9)))))
        ;; `$mix` is written out: V8 of Node 20 would call it for each row.
        (local.set $hash
          (i32.mul (i32.xor (local.get $hash) (i32.shr_u (local.get $hash) (i32.const 16))) (i32.const 0x85ebca6b)))
        (local.set $hash
          (i32.mul (i32.xor (local.get $hash) (i32.shr_u (local.get $hash) (i32.const 13))) (i32.const 0xc2b2ae35)))
        (local.set $hash (i32.xor (local.get $hash) (i32.shr_u (local.get $hash) (i32.const 16))))
        (if (i32.eqz (i32.and (local.get $mask) (local.get $hash)))
          (then
            (i32.store offset=0x24000 (i32.shl (local.get $sampled) (i32.const 2)) (local.get $index))
            (local.set $sampled
              (i32.add (local.get $sampled)
                (f64.lt
                  (f64.abs (f64.sub (f64.load (local.get $at)) (f64.load offset=0x8000 (local.get $at))))
                  (f64.const inf))))))
        (local.set $index (i32.add (local.get $index) (i32.const 1)))
        (br $next)))
    (i32.store (i32.const 0x2800c) (local.get $sampled)))

  ;; `mixHash` of value-names.ts.
  (func $mix (param $hash i32) (result i32)
    (local.set $hash
      (i32.mul (i32.xor (local.get $hash) (i32.shr_u (local.get $hash) (i32.const 16))) (i32.const 0x85ebca6b)))
    (local.set $hash
      (i32.mul (i32.xor (local.get $hash) (i32.shr_u (local.get $hash) (i32.const 13))) (i32.const 0xc2b2ae35)))
    (i32.xor (local.get $hash) (i32.shr_u (local.get $hash) (i32.const 16))))
)
